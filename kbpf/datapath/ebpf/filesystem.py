"""The two file systems the datapath stands on: bpffs, where it pins, and cgroup2, where it attaches.

What a path is on is told by the kernel's magic number, never by its name: /sys/fs/bpf exists on every kernel with BPF,
mounted or not. `probe` only asks; the daemon mounts a missing bpffs with `ensure_bpffs`.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbpf.errors import LoadFailed

BPF_FS = 0xCAFE4A11
CGROUP2 = 0x63677270
SYSFS = 0x62656572

# The kernel makes this folder in sysfs for nothing but a bpffs to be mounted on.
BPFFS_MOUNT_POINT = Path("/sys/fs/bpf")

_libc = ctypes.CDLL(None, use_errno=True)


def magic(path: Path) -> int:
    """The magic number of the file system that `path` is on."""
    # struct statfs begins with a long f_type on every 64-bit architecture; the rest is for room only.
    buffer = (ctypes.c_long * 32)()
    if _libc.statfs(os.fsencode(path), ctypes.byref(buffer)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))
    return buffer[0] & 0xFFFFFFFF


def nearest_existing(path: Path) -> Path:
    """`path`, or the closest folder above it that exists."""
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def is_mountable(root: Path, mount_point: Path = BPFFS_MOUNT_POINT) -> bool:
    """Is `root` on or below the kernel's own mount point, and nothing mounted there yet?"""
    return nearest_existing(root) == mount_point and magic(mount_point) == SYSFS


def ensure_bpffs(root: Path, mount_point: Path = BPFFS_MOUNT_POINT) -> None:
    """Make `root` a folder on a bpffs, and mount one at the kernel's mount point if it is missing there."""
    if is_mountable(root, mount_point) and _libc.mount(b"bpf", os.fsencode(mount_point), b"bpf", 0, None) != 0:
        error = ctypes.get_errno()
        raise LoadFailed(f"cannot mount a bpffs on {mount_point}: {os.strerror(error)}")
    if magic(nearest_existing(root)) != BPF_FS:
        raise LoadFailed(f"{root} is not on a bpffs: choose another --bpffs-root, or mount -t bpf bpf {root}")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LoadFailed(f"cannot create {root} (a bpffs takes no dots): {error.strerror}") from error


def is_cgroup2(path: Path) -> bool:
    try:
        return path.is_dir() and magic(path) == CGROUP2
    except OSError:
        return False


def find_cgroup2(mounts: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """The root of the host's cgroup2 hierarchy: the mount of it that hides the least."""
    found = []
    for line in mounts.read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        _, _, _, inner_root, mount_point, *_ = mount.split(" ")
        if kind.split(" ")[0] == "cgroup2":
            found.append((len(inner_root), len(mount_point), mount_point))
    return Path(min(found)[2].encode().decode("unicode_escape")) if found else None


@contextmanager
def scratch_cgroup(root: Path, purpose: str) -> Iterator[Path]:
    """A cgroup below `root` that is gone afterwards; whatever is attached to it goes with it."""
    path = root / f"kbpf-{purpose}-{os.getpid()}"
    path.mkdir()
    try:
        yield path
    finally:
        path.rmdir()


def cgroup_id(path: Path) -> int:
    """The number by which a link names its cgroup."""
    return path.stat().st_ino
