"""Events on Nodes and Services: where they go, and how many at most.

Whoever has something to say makes a Notice (`notices`) and emits it; what carries it to the API server is an `Events`
as well. Without an API server they end in the log.
"""

import threading
from typing import Protocol

import structlog

from kbpf.clock import Clock
from kbpf.observe.notices import Notice, Subject

log = structlog.get_logger()

BURST = 10
"""Notices on one object in a row; then one each PER_S."""
PER_S = 300.0
REPEAT_S = 3600.0
"""The same words again after this time at the earliest."""
MAX_SUBJECTS = 1000
"""Objects whose rate is remembered; of those that nothing was said of for longest, nothing is known any more."""


class Events(Protocol):
    def emit(self, notice: Notice) -> None:
        """Any thread may call it; it does not wait, and never fails."""
        ...


class LogEvents:
    """For a proxy without an API server. The log has a line of its own for each of these already."""

    def emit(self, notice: Notice) -> None:
        kind = "warning" if notice.is_warning else "normal"
        log.debug(f"event ({kind}) on {notice.subject}: {notice.reason}: {notice.note}")


class LimitedEvents:
    """Passes on what is new, and not too much about one object: Events are rows in the cluster's database."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._rates: dict[Subject, Rate] = {}
        self._lock = threading.Lock()

    def emit(self, notice: Notice) -> None:
        with self._lock:
            is_allowed = self._rate_of(notice.subject).allows(notice)
        if is_allowed:
            self._events.emit(notice)

    def _rate_of(self, subject: Subject) -> "Rate":
        rate = self._rates.pop(subject, None) or Rate(self._clock)
        self._rates[subject] = rate  # last in the order of who said something last
        if len(self._rates) > MAX_SUBJECTS:
            del self._rates[next(iter(self._rates))]
        return rate


class Rate:
    """A bucket of tokens for one object, and when its last notices were passed on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._filled_at = clock.monotonic()
        self._said_at: dict[Notice, float] = {}

    def allows(self, notice: Notice) -> bool:
        now = self._clock.monotonic()
        self._said_at = {said: at for said, at in self._said_at.items() if now - at < REPEAT_S}
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) / PER_S)
        self._filled_at = now
        if notice in self._said_at or self._tokens < 1:
            return False
        self._tokens -= 1
        self._said_at[notice] = now
        return True
