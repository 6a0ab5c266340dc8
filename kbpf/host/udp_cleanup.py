"""Forgets stale UDP flows after a sync: one look at the kernel's table a family, one batch of deletions.

Where eBPF translates sockets, connected ones have no such entry; those whose endpoint left are ended (`udp_sockets`).

The proxier notes every service that it resolves, and asks for the clean-up once the datapath holds the new state, never
before: a flow forgotten early would be tracked anew under the old rules. A failure costs one log line and is repaired
by the clean-up of the next sync.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from kbpf.clock import Clock
from kbpf.errors import HostError, KbpfError
from kbpf.host.conntrack import Conntrack
from kbpf.host.stale_udp import UdpFrontends
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.sockets import ConnectedSocket
from kbpf.model.table import ServiceTable
from kbpf.policy.resolve import Cluster

log = logging.getLogger(__name__)


class CleanedFlows(msgspec.Struct, frozen=True):
    family: Family
    deleted: int
    duration_s: float


class TranslatedSockets(Protocol):
    """Connected UDP sockets whose destination a datapath translated; both methods raise KbpfError."""

    def read(self) -> Iterable[ConnectedSocket]: ...

    def end(self, sockets: Iterable[ConnectedSocket]) -> int:
        """Returns how many were still there."""
        ...


class UdpCleanup:
    def __init__(self, conntrack: Conntrack, clock: Clock, sockets: TranslatedSockets | None = None) -> None:
        """`sockets`: where a datapath translates connected sockets themselves."""
        self._conntrack = conntrack
        self._sockets = sockets
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
        self._end_sockets()
        cleaned = []
        for family in sorted(self._due, key=lambda due: due.value):
            try:
                cleaned.append(self._clean(family))
            except HostError as error:
                self._tell_failure(str(error))
        self._due -= {done.family for done in cleaned}
        if not self._due and not self._has_sockets_to_end:
            self._failure = ""
        return tuple(cleaned)

    @property
    def _has_sockets_to_end(self) -> bool:
        """Who comes makes no socket stale, only who leaves."""
        return self._sockets is not None and self._frontends.has_lost_servers

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

    def _end_sockets(self) -> None:
        if self._sockets is None or not self._has_sockets_to_end:
            return
        started = self._clock.monotonic()
        try:
            ended = self._sockets.end(self._frontends.stale_sockets(self._sockets.read()))
        except KbpfError as error:
            self._tell_failure(str(error))
            return
        self._frontends.has_lost_servers = False
        if ended:
            duration_ms = (self._clock.monotonic() - started) * 1000
            log.info(f"ended {ended} connected UDP sockets whose endpoint left in {duration_ms:.1f} ms")

    def _tell_failure(self, words: str) -> None:
        """Once, not with every sync, until it changes."""
        if words != self._failure:
            self._failure = words
            log.warning(f"stale UDP flows stay until the next sync: {words}")
