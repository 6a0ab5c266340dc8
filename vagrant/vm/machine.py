"""One run of a virtual machine: boots a kernel, runs a command in the checkout inside, and brings out its results.

The checkout goes in as a disk, results come out on another one, and the exit status is a line on the console. The root
disk is written to memory only, so every run begins with the same one.
"""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.progress import say
from vagrant.vm import checkout, disk
from vagrant.vm.commands import VmError
from vagrant.vm.installed import Installed
from vagrant.vm.kernels import Kernel

MEMORY_MB = 2048
RESULTS_BYTES = 32 << 20
_STATUS = re.compile(r"^KBPF-EXIT-STATUS=(\d+)")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Software emulation runs Python about twelve times slower; a machine under load slower still.
TIMEOUT_SCALES = {"kvm": 2, "tcg": 6}


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    seconds: float
    results: Path


def accelerator() -> str:
    """`kvm` or `tcg`. /dev/kvm alone is no proof: nested it may only run kernels that were built for it."""
    wish = os.environ.get("KBPF_VM_ACCEL")
    if wish:
        if wish not in TIMEOUT_SCALES:
            raise VmError(f"KBPF_VM_ACCEL={wish}: must be one of {', '.join(TIMEOUT_SCALES)}")
        return wish
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has_extensions = flags is not None and not {"vmx", "svm"}.isdisjoint(flags[1].split())
    return "kvm" if has_extensions and os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg"


def run(kernel: Kernel, boots: Installed, root: Path, command: Sequence[str], scratch: Path, limit_s: float) -> Ended:
    """`root` is the root disk; files of the run go to `scratch`. Raises VmError when there is no exit status."""
    source, results = scratch / "source.tar", scratch / "results.img"
    checkout.pack(source, command)
    disk.make_empty(results, RESULTS_BYTES)
    disks = ((root, "snapshot=on"), (boots.modules, "readonly=on"), (source, "readonly=on"), (results, ""))
    started = time.monotonic()
    status = _watch(kernel.name, _qemu(kernel, boots, disks), scratch / "console.txt", limit_s)
    unpacked = scratch / "results"
    unpacked.mkdir()
    subprocess.run(["tar", "--extract", f"--directory={unpacked}", f"--file={results}"], check=False)
    return Ended(status, time.monotonic() - started, unpacked)


def _qemu(kernel: Kernel, boots: Installed, disks: Sequence[tuple[Path, str]]) -> list[str]:
    accel = accelerator()
    hardware = ["-accel", "kvm", "-cpu", "host"] if accel == "kvm" else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    words = [
        "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0",
        f"KBPF_TIMEOUT_SCALE={TIMEOUT_SCALES[accel]}",
        *kernel.boot,
    ]
    # qemu goes when this process does, however it goes.
    command = ["setpriv", "--pdeathsig=KILL", "qemu-system-x86_64", *hardware]
    command += ["-m", str(MEMORY_MB), "-smp", str(min(2, os.cpu_count() or 1))]
    command += ["-nodefaults", "-no-user-config", "-no-reboot", "-nographic", "-serial", "stdio", "-monitor", "none"]
    command += ["-kernel", str(boots.image), "-initrd", str(boots.initrd), "-append", " ".join(words)]
    for number, (path, option) in enumerate(disks):
        drive = f"file={path},if=none,id=disk{number},format=raw,{option}".rstrip(",")
        command += ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{number}"]
    return command


def _watch(name: str, command: Sequence[str], console: Path, limit_s: float) -> int:
    """Shows the console until the machine is off. Its exit status is the last word."""
    status: int | None = None
    timed_out = threading.Event()
    with (
        console.open("w") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as qemu,
    ):
        alarm = threading.Timer(limit_s, _end, (qemu, timed_out))
        alarm.start()
        try:
            assert qemu.stdout is not None  # noqa: S101
            for raw in qemu.stdout:
                line = _ESCAPE.sub("", raw.decode(errors="replace")).strip()
                log.write(f"{line}\n")
                if found := _STATUS.match(line):
                    status = int(found[1])
                elif line:
                    say(f"{name}: {line}")
        finally:
            alarm.cancel()
            qemu.kill()
    if timed_out.is_set():
        raise VmError(f"{name}: not done within {limit_s:.0f} s; switched off")
    if status is None:
        raise VmError(f"{name}: the machine ended without an exit status: {_last_words(console)}")
    return status


def _end(qemu: subprocess.Popen[bytes], timed_out: threading.Event) -> None:
    timed_out.set()
    qemu.send_signal(signal.SIGKILL)


def _last_words(console: Path) -> str:
    return (console.read_text().strip().splitlines() or ["it said nothing"])[-1]
