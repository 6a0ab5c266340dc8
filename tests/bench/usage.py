"""What a process and the programs that it starts take from the machine: CPU time, and memory at the worst moment."""

import os
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """User and system time of the process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


class PeakMemory:
    """Resident memory of the process and its children together; as good as it is sampled often."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0

    def sample(self) -> None:
        own = _program(self.pid)
        # A child that has not become another program yet still shows the memory of its parent.
        others = [child for child in _children(self.pid) if _program(child) != own]
        self.peak = max(self.peak, resident(self.pid) + sum(map(resident, others)))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found += map(int, task.read_text().split())
    return found


def _program(pid: int) -> str:
    with suppress(OSError):  # it has just ended
        return str(Path(f"/proc/{pid}/exe").readlink())
    return ""


def resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0
