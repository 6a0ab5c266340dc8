"""The initial file system of a kernel: busybox, the modules for the disks, and guest/initrd-init."""

import gzip
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from vagrant.vm.commands import run

INIT = Path(__file__).parents[1] / "guest/initrd-init"
BUSYBOX = Path("/bin/busybox")
MODULES = ("virtio_pci", "virtio_blk", "ext4")
_DECOMPRESSORS = {".xz": "xz", ".zst": "zstd"}


def fingerprint() -> str:
    """What is made here changes with it."""
    return hashlib.sha256(INIT.read_bytes() + Path(__file__).read_bytes()).hexdigest()


def make(tree: Path, version: str, target: Path) -> None:
    """From the unpacked kernel in `tree`."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for name in ("bin", "modules", "proc", "sys", "dev", "root"):
            (root / name).mkdir()
        shutil.copy(BUSYBOX, root / "bin/busybox")
        shutil.copy(INIT, root / "init")
        (root / "init").chmod(0o755)
        modules = _in_order(tree, version)
        for module in modules:
            (root / "modules" / _plain(module)).write_bytes(_content(module))
        (root / "modules/order").write_text("".join(f"{_plain(module)}\n" for module in modules))
        names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
        command = (BUSYBOX, "cpio", "-o", "-H", "newc")
        packed = subprocess.run(command, input=names.encode(), cwd=root, capture_output=True, check=True)
        target.write_bytes(gzip.compress(packed.stdout, compresslevel=1))


def _in_order(tree: Path, version: str) -> list[Path]:
    """Files of the modules, each after those that it needs; what is built in needs none."""
    files: dict[Path, None] = {}
    for name in MODULES:
        for line in run("modprobe", "-d", tree, "-S", version, "--show-depends", name).splitlines():
            kind, _, path = line.strip().partition(" ")
            if kind == "insmod":
                files[Path(path)] = None
    return list(files)


def _plain(module: Path) -> str:
    return module.name.removesuffix(module.suffix) if module.suffix in _DECOMPRESSORS else module.name


def _content(module: Path) -> bytes:
    tool = _DECOMPRESSORS.get(module.suffix)
    if tool is None:
        return module.read_bytes()
    return subprocess.run([tool, "-dc", module], capture_output=True, check=True).stdout
