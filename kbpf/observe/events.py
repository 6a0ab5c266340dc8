"""Events on Nodes and Services: where they go, and how many at most.

Whoever has something to say makes a Notice (`notices`) and emits it; what carries it to the API server is an `Events`
as well. Without an API server they end in the log.
"""

import logging
import threading
from typing import NamedTuple, Protocol

from kbpf.clock import Clock
from kbpf.observe.notices import Notice, Subject

log = logging.getLogger(__name__)

BURST = 10
"""Notices on one object in a row; then one each PER_S."""
PER_S = 300.0
REPEAT_S = 600.0
"""The same words again after this time at the earliest, with the number of times."""
FORGET_S = 3600.0
"""Then the API server has forgotten an Event as well."""
MAX_SUBJECTS = 1000
"""Objects whose rate is remembered; of those that nothing was said of for longest, nothing is known any more."""


class Events(Protocol):
    def emit(self, notice: Notice, repeats: int = 0) -> None:
        """Any thread may call it; it does not wait, and never fails.

        `repeats`: how often the same was said since it was last passed on.
        """
        ...


class LogEvents:
    """For a proxy without an API server. The log has a line of its own for each of these already."""

    def emit(self, notice: Notice, repeats: int = 0) -> None:
        kind = "warning" if notice.is_warning else "normal"
        log.debug(f"event ({kind}) on {notice.subject}: {notice.reason}: {notice.note}")


class LimitedEvents:
    """Passes on what is new, and not too much about one object: Events are rows in the cluster's database."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._rates: dict[Subject, Rate] = {}
        self._lock = threading.Lock()

    def emit(self, notice: Notice, repeats: int = 0) -> None:
        with self._lock:
            unsaid = self._rate_of(notice.subject).unsaid(notice, repeats)
        if unsaid is not None:
            self._events.emit(notice, unsaid)

    def _rate_of(self, subject: Subject) -> "Rate":
        rate = self._rates.pop(subject, None) or Rate(self._clock)
        self._rates[subject] = rate  # last in the order of who said something last
        if len(self._rates) > MAX_SUBJECTS:
            del self._rates[next(iter(self._rates))]
        return rate


class Said(NamedTuple):
    """When a notice was passed on, and how often it has been held back since."""

    at: float
    repeats: int = 0


class Rate:
    """A bucket of tokens for one object, and its last notices."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._filled_at = clock.monotonic()
        self._said: dict[Notice, Said] = {}

    def unsaid(self, notice: Notice, repeats: int) -> int | None:
        """None when nothing is to be passed on now; else how often the same was held back before."""
        now = self._clock.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) / PER_S)
        self._filled_at = now
        said = self._said.get(notice)
        if said and now - said.at < REPEAT_S:
            self._said[notice] = Said(said.at, said.repeats + 1 + repeats)
            return None
        if self._tokens < 1:
            return None
        self._tokens -= 1
        self._said = {other: was for other, was in self._said.items() if now - was.at < FORGET_S}
        self._said[notice] = Said(now)
        return repeats + (said.repeats if said else 0)
