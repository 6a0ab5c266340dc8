"""What someone who believes every event of an API source thinks the API server holds, and whether that is so."""

import time
from collections.abc import Callable

from kbpf.clock import SystemClock
from kbpf.demo.patience import patient
from kbpf.model.events import Event, Kind, NodeChanged, ServiceChanged, SliceChanged, SourceFailed, Synced
from kbpf.source.api.access import Access
from kbpf.source.api.http import HttpTransport
from kbpf.source.api.source import ApiSource

Held = dict[str, dict[str, str]]
"""By kind, then by namespace and name: the resource version."""


class Mirror:
    """`there` tells what the API server really holds. `stop` it at the end."""

    def __init__(self, access: Access, there: Callable[[], Held], answer_within_s: float = 60.0) -> None:
        self.there = there
        self.held: Held = {kind.value: {} for kind in Kind}
        self.events: list[Event] = []
        self.synced: list[Kind] = []
        self.failed: list[SourceFailed] = []
        url = access.read().url
        self.source = ApiSource(HttpTransport(access, answer_within_s), url, "n1", SystemClock())

    def start(self) -> "Mirror":
        self.source.start(self.take)
        return self

    def stop(self) -> None:
        self.source.stop()
        assert self.failed == []

    def take(self, event: Event | SourceFailed) -> None:
        if isinstance(event, Synced):
            self.synced.append(event.kind)
        elif isinstance(event, SourceFailed):
            self.failed.append(event)
        else:
            self._hold(event)
            self.events.append(event)

    def _hold(self, event: ServiceChanged | SliceChanged | NodeChanged) -> None:
        match event:
            case ServiceChanged(name, now):
                held = self.held["Service"]
            case SliceChanged(name, now):
                held = self.held["EndpointSlice"]
            case NodeChanged(name, now):
                held = self.held["Node"]
        if now is None:
            del held[str(name)]  # a deletion of what was never there would be a mistake
        else:
            held[str(name)] = now.metadata.resource_version or ""

    @property
    def is_in_step(self) -> bool:
        return len(self.synced) == len(Kind) and self.there() == self.held

    def expect_in_step(self, timeout_s: float = 15.0) -> None:
        eventually(lambda: self.is_in_step, timeout_s, lambda: f"{self.held} instead of {self.there()}")


def eventually(
    holds: Callable[[], object], timeout_s: float = 15.0, words: Callable[[], str] = lambda: "never came true"
) -> None:
    deadline = time.monotonic() + patient(timeout_s)
    while not holds():
        assert time.monotonic() < deadline, words()[:2000]
        time.sleep(0.01)
