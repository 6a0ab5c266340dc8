"""What the machine holds of the kinds that the rig makes, one line each, so that before and after can be compared."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kbpf.demo.cgroups import find_cgroups
from kbpf.demo.namespaces import DIRECTORY
from tests.kernel.traces import TABLES

BPFFS = Path("/sys/fs/bpf")
OTHERS = re.compile(r"kbpf(test|demo|bench|start|-test)[-_\d]")
"""Worlds of other tests, benches and demos, which may come and go meanwhile, and are judged where they are made."""


def contents(folder: Path) -> frozenset[str]:
    """Namespaces, cgroups, pins, devices, rules in both back ends, and processes that run out of `folder`."""
    return frozenset(_lines(folder))


def _lines(folder: Path) -> Iterator[str]:
    for kind, paths in (("namespace", DIRECTORY.glob("*")), ("cgroup", find_cgroups("")), ("pin", BPFFS.glob("*"))):
        yield from (f"{kind} {path.name}" for path in paths if not OTHERS.match(path.name))
    yield from (f"device {path.name}" for path in Path("/sys/class/net").iterdir())
    for save in TABLES:
        rules = subprocess.run([save], capture_output=True, text=True, check=True).stdout.splitlines()
        # Chains with their counters, and the comments with the time, are different each time.
        yield from (f"{save}: {line.split(' [')[0]}" for line in rules if not line.startswith("#"))
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        command = _read(path).replace("\0", " ")
        if str(folder) in command:
            yield f"process {path.parent.name} {command[:80]}"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # It has ended meanwhile.
        return ""
