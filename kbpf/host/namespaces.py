"""The network namespaces of this machine, and work inside them. A thread enters them one by one and then ends.

Container runtimes keep those of pods under /run; the others are found by their processes, as far as those may be looked
at. Used by `udp_sockets`, and by the worlds of the demo, which enter namespaces that they made.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TypeVar

CLONE_NEWNET = 0x40000000
OWN = Path("/proc/thread-self/ns/net")
FOLDERS = (Path("/run/netns"), Path("/run/docker/netns"))
# os.setns exists only from Python 3.12 on.
_libc = ctypes.CDLL(None, use_errno=True)

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> Result:
    """A thread that has entered another namespace is of no use afterwards."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result()


def enter(namespace: Path) -> None:
    """Move the calling thread. Raises OSError."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_open(descriptor, str(namespace))
    finally:
        os.close(descriptor)


def enter_open(descriptor: int, name: str) -> None:
    """Move the calling thread into a namespace that is open already. Raises OSError with this name."""
    if _libc.setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def others() -> Iterator[Path]:
    """A file for each network namespace but the caller's, each namespace once."""
    seen = {_identity(OWN)}
    for path in chain(_kept(), _of_processes()):
        identity = _identity(path)
        if identity is not None and identity not in seen:
            seen.add(identity)
            yield path


def _kept() -> Iterator[Path]:
    for folder in FOLDERS:
        if folder.is_dir():
            yield from folder.iterdir()


def _of_processes() -> Iterator[Path]:
    return (process / "ns" / "net" for process in Path("/proc").iterdir() if process.name.isdecimal())


def _identity(namespace: Path) -> tuple[int, int] | None:
    """None: it is gone, or not for us to look at."""
    try:
        found = namespace.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
