"""This process as the kernel sees it."""

from pathlib import Path

from kbpf.errors import HostError

OOM_SCORE = Path("/proc/self/oom_score_adj")


def adjust_oom_score(adjustment: int, file: Path = OOM_SCORE) -> None:
    """The lower, the later it is killed when memory runs out. Raises HostError."""
    try:
        file.write_text(f"{adjustment}\n")
    except OSError as error:
        raise HostError(f"cannot set the OOM score adjustment to {adjustment}: {error.strerror or error}") from error
