"""Proxy health: is what the cluster asked for in the kernel, or has a change waited for too long?

The control thread tells it of queued and finished syncs; HTTP threads read `snapshot`. The rules are kube-proxy's
(KEP-3836 for /livez); kbpf adds that nothing is healthy before the first complete sync.
"""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from kbpf.clock import Clock


@dataclass(frozen=True, slots=True)
class Health:
    """Times are seconds since the epoch; `last_updated` is None before the first complete sync."""

    is_healthy: bool
    is_node_eligible: bool
    last_updated: float | None
    now: float

    def body(self, *, with_node: bool) -> bytes:
        """One line of JSON in kube-proxy's form. `lastUpdated` equals `currentTime` in a good answer, as there."""
        is_good = self.is_healthy and (self.is_node_eligible or not with_node)
        updated = self.now if is_good else self.last_updated
        fields: dict[str, object] = {"lastUpdated": _rfc3339(updated), "currentTime": _rfc3339(self.now)}
        if with_node:
            fields["nodeEligible"] = self.is_node_eligible
        fields["healthy"] = self.is_healthy
        return msgspec.json.encode(fields)


class HealthTracker:
    """Healthy: a first sync was complete, and no change has been waiting for longer than `timeout_s`."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # three fields that change together, read by HTTP threads
        self._last_updated: float | None = None
        self._oldest_queued: float | None = None
        self._is_node_eligible = True

    def queued(self) -> None:
        """A change waits for a sync."""
        with self._lock:
            if self._oldest_queued is None:
                self._oldest_queued = self._clock.monotonic()

    def updated(self) -> None:
        """A sync succeeded: everything queued so far is in the kernel."""
        with self._lock:
            self._oldest_queued = None
            self._last_updated = self._clock.now()

    def node_eligible(self, is_eligible: bool) -> None:
        """Whether load balancers may send this node new connections; false while it is being removed."""
        with self._lock:
            self._is_node_eligible = is_eligible

    def snapshot(self) -> Health:
        with self._lock:
            waited = 0.0 if self._oldest_queued is None else self._clock.monotonic() - self._oldest_queued
            is_healthy = self._last_updated is not None and waited < self._timeout_s
            return Health(is_healthy, self._is_node_eligible, self._last_updated, self._clock.now())


def _rfc3339(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
