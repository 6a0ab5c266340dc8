"""Proxy health: is what the cluster asked for in the kernel, or has a change waited for too long?

The control thread tells it of queued and finished syncs; HTTP threads read `snapshot`. The rules are kube-proxy's
(KEP-3836 for /livez), family by family; kbpf adds that /healthz is not good before the first complete sync.
"""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from kbpf.clock import Clock
from kbpf.model.address import Family

NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time, which kube-proxy answers where there is none."""


class FamilyHealth(msgspec.Struct, frozen=True):
    """`last_updated` is in seconds since the epoch."""

    is_healthy: bool
    last_updated: float


class Health(msgspec.Struct, frozen=True):
    """`families` are those that were synced at least once; the others do not count."""

    families: dict[Family, FamilyHealth]
    is_node_eligible: bool
    is_waiting: bool
    """A change has waited for too long, whether or not there was a sync before."""
    now: float

    @property
    def is_alive(self) -> bool:
        return not self.is_waiting and all(family.is_healthy for family in self.families.values())

    @property
    def is_healthy(self) -> bool:
        return bool(self.families) and self.is_alive

    def body(self, *, with_node: bool) -> bytes:
        """One line of JSON in kube-proxy's form. `lastUpdated` equals `currentTime` in a good answer, as there."""
        is_good = self.is_healthy and self.is_node_eligible if with_node else self.is_alive
        newest = max((family.last_updated for family in self.families.values()), default=None)
        fields: dict[str, object] = {
            "lastUpdated": rfc3339(self.now if is_good else newest),
            "currentTime": rfc3339(self.now),
        }
        if with_node:
            fields["nodeEligible"] = self.is_node_eligible
        fields["healthy"] = self.is_healthy if with_node else self.is_alive
        fields["status"] = {
            family.value: {"lastUpdated": rfc3339(health.last_updated), "healthy": health.is_healthy}
            for family, health in self.families.items()
        }
        return msgspec.json.encode(fields)


class HealthTracker:
    """A family is healthy while no change for it has been waiting for longer than `timeout_s`."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # what changes together is read by HTTP threads
        self._last_updated: dict[Family, float] = {}
        self._oldest_queued: dict[Family, float] = {}
        self._is_node_eligible = True

    def queued(self) -> None:
        """A change waits for a sync."""
        with self._lock:
            now = self._clock.monotonic()
            for family in Family:
                self._oldest_queued.setdefault(family, now)

    def updated(self, families: Iterable[Family]) -> None:
        """A sync succeeded for these: everything queued so far is in the kernel."""
        with self._lock:
            for family in families:
                self._oldest_queued.pop(family, None)
                self._last_updated[family] = self._clock.now()

    def node_eligible(self, is_eligible: bool) -> None:
        """Whether load balancers may send this node new connections; false while it is being removed."""
        with self._lock:
            self._is_node_eligible = is_eligible

    def snapshot(self) -> Health:
        with self._lock:
            families = {
                family: FamilyHealth(not self._has_waited(family), self._last_updated[family])
                for family in Family
                if family in self._last_updated
            }
            is_waiting = not families and any(map(self._has_waited, Family))
            return Health(families, self._is_node_eligible, is_waiting, self._clock.now())

    def waiting_s(self) -> float:
        """How long the oldest change has been waiting; zero when there is none."""
        with self._lock:
            oldest = min(self._oldest_queued.values(), default=None)
        return 0.0 if oldest is None else self._clock.monotonic() - oldest

    def _has_waited(self, family: Family) -> bool:
        since = self._oldest_queued.get(family)
        return since is not None and self._clock.monotonic() - since >= self._timeout_s


def rfc3339(seconds: float | None) -> str:
    return NEVER if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
