"""This process as the kernel sees it."""

import ctypes
from pathlib import Path

from kbpf.errors import HostError

OOM_SCORE = Path("/proc/self/oom_score_adj")


def adjust_oom_score(adjustment: int, file: Path = OOM_SCORE) -> None:
    """The lower, the later it is killed when memory runs out. Raises HostError."""
    try:
        file.write_text(f"{adjustment}\n")
    except OSError as error:
        raise HostError(f"cannot set the OOM score adjustment to {adjustment}: {error.strerror or error}") from error


def release_memory() -> None:
    """Give back to the system what is free: glibc keeps it otherwise. Elsewhere nothing happens."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
