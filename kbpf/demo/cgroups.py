"""The cgroup tree of a world: where it is, which processes are in it, how it ends.

Socket hooks are attached to a cgroup, so a node is a cgroup as much as it is a network namespace. And every process of
a world is in its tree, so that what has to be ended is known even when the process that started it is gone.
"""

import contextlib
import os
import signal
import time
from functools import cache
from pathlib import Path

from kbpf.demo.patience import patient
from kbpf.errors import KbpfError

PATIENCE_S = 5.0


@cache
def _mounts(kind: str) -> tuple[Path, ...]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return tuple(Path(directory) for _, directory, found, *_ in map(str.split, lines) if found == kind)


def cgroup2_mount() -> Path:
    if not _mounts("cgroup2"):
        raise KbpfError("no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup")
    return _mounts("cgroup2")[0]


def tree_mount() -> Path:
    """Where a world's tree stands: on cgroup2, or else on version 1, which knows its processes but has no hooks."""
    version1 = _mounts("cgroup")
    return version1[0] if version1 and not _mounts("cgroup2") else cgroup2_mount()


def find_cgroups(prefix: str) -> list[Path]:
    return [cgroup for mount in (*_mounts("cgroup2"), *_mounts("cgroup")) for cgroup in mount.glob(f"{prefix}*")]


def join(cgroup: Path, process: int) -> None:
    (cgroup / "cgroup.procs").write_text(str(process))


def remove_tree(cgroup: Path) -> None:
    """End every process below a cgroup, then remove it and its children. Safe when it is gone already."""
    deadline = time.monotonic() + patient(PATIENCE_S)
    while cgroup.exists():
        processes = _processes(cgroup)
        if time.monotonic() > deadline:
            raise KbpfError(
                f"{cgroup} is busy for {patient(PATIENCE_S):.0f} s after the end of its processes; left: {processes}"
            )
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _try_to_remove(cgroup)
        time.sleep(0.002)


def _try_to_remove(cgroup: Path) -> None:
    """A cgroup is busy for a moment longer than it lists its last process."""
    with contextlib.suppress(OSError):
        for directory, _, _ in os.walk(cgroup, topdown=False):
            Path(directory).rmdir()


def _processes(cgroup: Path) -> list[int]:
    return [int(process) for file in cgroup.rglob("cgroup.procs") for process in file.read_text().split()]
