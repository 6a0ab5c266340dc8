"""Time as an argument: everything that waits or measures takes a Clock, so tests never sleep."""

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean something."""
        ...

    def now(self) -> float:
        """Seconds since the epoch, for people and for other machines."""
        ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 1000.0) -> None:
        self.time = start

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds
