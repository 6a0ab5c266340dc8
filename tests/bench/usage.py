"""What a process and the programs that it starts take from the machine: CPU time, and memory at the worst moment."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SAMPLE_S = 0.01
PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(cgroup: Path) -> float:
    """User and system time of all processes that are or were in it, to the microsecond: a tick is too coarse here."""
    lines = dict(line.split() for line in (cgroup / "cpu.stat").read_text().splitlines())
    return int(lines["usage_usec"]) / 1e6


class NeverAtRest(Exception):
    """A process starts others all the time."""


def rest(pid: int, quiet_s: float, timeout_s: float, watch: Callable[[], None] = lambda: None) -> None:
    """Return when the process has had no child for so long; `watch` is called all the time. Raises NeverAtRest."""
    begin = quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < quiet_s:
        watch()
        if _children(pid):
            quiet_since = time.monotonic()
        if time.monotonic() - begin > timeout_s:
            raise NeverAtRest(f"process {pid} has not been at rest for {quiet_s:.0f} s in {timeout_s:.0f} s")
        time.sleep(SAMPLE_S)


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
