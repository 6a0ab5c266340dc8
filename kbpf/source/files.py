"""Manifest files on disk: which ones a path stands for, whether they changed, and what they say.

Called by `manifests`. A failure is an OSError; a file that somebody is still writing is never read by half.
"""

import errno
import fcntl
import os
import signal
import stat
import time
from pathlib import Path
from typing import NamedTuple

SUFFIXES = (".yaml", ".yml", ".json")
MAX_SIZE = 1 << 30
FRESH_NS = 100_000_000
"""File times tick: a file touched less than this ago may change again and look the same."""


class BeingWritten(OSError):
    """Somebody has the file open for writing, or it changed while it was read."""


class Signature(NamedTuple):
    """Equal while a file was not touched. A file put in the place of another one has another inode."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @property
    def is_fresh(self) -> bool:
        return max(self.modified_ns, self.changed_ns) > time.time_ns() - FRESH_NS


def files_of(path: str) -> list[str]:
    """The path itself, or the manifest files directly in it when it is a directory.

    Names that begin with a dot are passed over: editors' copies, and the "..2024_01_01" directories behind the links of
    a mounted ConfigMap; the links themselves are read.
    """
    if not path:  # to pathlib the current directory, to people a variable that was not set
        raise FileNotFoundError(errno.ENOENT, "no path")
    if not stat.S_ISDIR(Path(path).stat().st_mode):
        return [path]
    with os.scandir(path) as entries:
        return sorted(
            entry.path
            for entry in entries
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file()
        )


def is_stream(path: str) -> bool:
    """Standard input, or a pipe such as the shell's `<(command)`: there is one chance to read it."""
    return path == "-" or Path(path).is_fifo()


def signature(path: str) -> Signature:
    return _signature(os.stat(path))  # noqa: PTH116  (thousands of files, every second)


def read_file(path: str, *, even_if_being_written: bool = False) -> tuple[Signature, bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
    with os.fdopen(descriptor, "rb") as file:
        before = _signature(os.fstat(descriptor))
        if before.size > MAX_SIZE:
            raise OSError(errno.EFBIG, f"larger than {MAX_SIZE >> 20} MiB")
        if not even_if_being_written and _has_writer(descriptor):
            raise BeingWritten(errno.EAGAIN, "being written")
        text = file.read()
        if not even_if_being_written and _signature(os.fstat(descriptor)) != before:
            raise BeingWritten(errno.EAGAIN, "being written")
    return before, text


def _signature(status: os.stat_result) -> Signature:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _has_writer(descriptor: int) -> bool:
    """The kernel refuses a read lease on a file that is open for writing anywhere: `kubectl get … > file` for a second.

    Where leases do not work (another user's file, some network file systems) nobody is said to write.
    """
    try:
        # A writer that comes while we hold the lease makes the kernel send a signal; SIGIO, the default, would kill us.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
