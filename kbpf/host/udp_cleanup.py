"""Forgets stale UDP flows after a sync: one look at the kernel's table a family, one batch of deletions.

The proxier notes every service that it resolves, and asks for the clean-up once the datapath holds the new state, never
before: a flow forgotten early would be tracked anew under the old rules. A failure costs one log line and is repaired
by the clean-up of the next sync.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from kbpf.clock import Clock
from kbpf.errors import HostError
from kbpf.host.conntrack import Conntrack
from kbpf.host.stale_udp import UdpFrontends
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable
from kbpf.policy.resolve import Cluster

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanedFlows:
    family: Family
    deleted: int
    duration_s: float


class UdpCleanup:
    def __init__(self, conntrack: Conntrack, clock: Clock) -> None:
        self._conntrack = conntrack
        self._clock = clock
        self._frontends = UdpFrontends()
        self._due: set[Family] = set()
        self._failure = ""

    def note(self, services: Collection[ServiceName], table: ServiceTable, cluster: Cluster) -> None:
        """`services` were resolved anew and are about to be synced."""
        if self._frontends.update(services, table, cluster):
            self._due.update(Family)

    def clean(self, *, repaired: bool) -> tuple[CleanedFlows, ...]:
        """The datapath holds what was noted. `repaired`: a full sync had to write, so there was a time without rules,
        and flows of any Service may have begun untranslated in it."""
        if repaired:
            self._due.update(Family)
        cleaned = []
        for family in sorted(self._due, key=lambda due: due.value):
            try:
                cleaned.append(self._clean(family))
            except HostError as error:
                self._tell_failure(str(error))
        self._due -= {done.family for done in cleaned}
        if not self._due:
            self._failure = ""
        return tuple(cleaned)

    def _clean(self, family: Family) -> CleanedFlows:
        started = self._clock.monotonic()
        deleted = 0
        if self._frontends.has_any(family):
            deleted = self._conntrack.delete(self._frontends.stale(family, self._conntrack.list_udp(family)))
            self._frontends.forget_departed(family)
        duration_s = self._clock.monotonic() - started
        if deleted:
            log.info(f"forgot {deleted} stale {family.value} UDP flows in {duration_s * 1000:.1f} ms")
        return CleanedFlows(family, deleted, duration_s)

    def _tell_failure(self, words: str) -> None:
        """Once, not with every sync, until it changes."""
        if words != self._failure:
            self._failure = words
            log.warning(f"stale UDP flows stay until the next sync: {words}")
