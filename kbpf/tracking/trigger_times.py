"""When the changes happened that a sync carries out, as the EndpointSlice controller says in an annotation.

Kept by the trackers, by Service, until a sync has succeeded; then the time since each is the network programming
latency. It is no part of what is compared: a new time alone is no change.
"""

from datetime import datetime
from typing import NamedTuple

from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.objects import TRIGGER_TIME_ANNOTATION, EndpointSlice


class TriggerTime(NamedTuple):
    """`seconds` since the epoch."""

    family: Family
    seconds: float


class TriggerTimes:
    """Only those after `since` count: what happened before this process began is not its latency."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._times: dict[ServiceName, tuple[TriggerTime, ...]] = {}

    def note(self, service: ServiceName, family: Family, slice_: EndpointSlice) -> None:
        """A slice of the Service was taken and differs from what was last synced."""
        seconds = trigger_time(slice_)
        if seconds is not None and seconds > self._since:
            self._times[service] = (*self._times.get(service, ()), TriggerTime(family, seconds))

    def forget(self, service: ServiceName) -> None:
        """A slice is gone, and nothing says when."""
        self._times.pop(service, None)

    def checkout(self) -> dict[ServiceName, tuple[TriggerTime, ...]]:
        return dict(self._times)

    def commit(self, shown: dict[ServiceName, tuple[TriggerTime, ...]]) -> None:
        """Those that came since `checkout` stay."""
        for service, times in shown.items():
            rest = self._times.pop(service, ())[len(times) :]
            if rest:
                self._times[service] = rest


def trigger_time(slice_: EndpointSlice) -> float | None:
    """RFC 3339 with nanoseconds; anything else is none."""
    text = (slice_.metadata.annotations or {}).get(TRIGGER_TIME_ANNOTATION)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None
