"""What the log should hear of one resource: each outage and each bad object once, not once a try. Pure."""

from typing import NamedTuple

from kbpf.clock import Clock
from kbpf.source.object_key import ObjectKey

REPEAT_AFTER_S = 300.0


class Line(NamedTuple):
    words: str
    is_good: bool = False


class News:
    def __init__(self, subject: str, clock: Clock) -> None:
        self._subject = subject
        self._clock = clock
        self._lines: list[Line] = []
        self._outage = ""
        self._told_at = 0.0
        self._problems: dict[ObjectKey | None, str] = {}

    def outage(self, words: str) -> None:
        """It does not work, for this reason. Told again when the reason changes, and every few minutes."""
        now = self._clock.monotonic()
        if words != self._outage or now - self._told_at >= REPEAT_AFTER_S:
            self._outage, self._told_at = words, now
            self._lines.append(Line(f"{self._subject}: {words}; asking again"))

    def recovered(self) -> None:
        if self._outage:
            self._outage = ""
            self._lines.append(Line(f"{self._subject}: the API server answers again", is_good=True))

    def problem(self, key: ObjectKey | None, words: str) -> None:
        """What is wrong with an object. Without a key nobody knows with which."""
        if self._problems.get(key) != words:
            self._problems[key] = words
            self._lines.append(Line(words))

    def no_problem(self, key: ObjectKey) -> None:
        self._problems.pop(key, None)

    def take(self) -> list[Line]:
        """What was not told yet."""
        lines, self._lines = self._lines, []
        return lines
