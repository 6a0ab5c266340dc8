"""eBPF for everything that it treats exactly like kube-proxy, iptables for the few frontends that it defers.

The residue is a ServiceTable of its own, holding only deferred frontends; while it is empty there is no rule of ours in
netfilter at all, so that in-cluster traffic meets neither nat nor conntrack.
"""

from collections.abc import Set
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from kbpf.datapath.interface import Datapath, Support, SyncReport
from kbpf.model.names import ServiceName
from kbpf.model.table import ResolvedPort, ServiceTable

Decision = TypeVar("Decision")


class DeferringDatapath(Datapath, Protocol[Decision]):
    """A datapath that says what it will not carry before it writes anything."""

    def prepare(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> Decision:
        """Decide a sync without writing."""
        ...

    def residue(self, port: ResolvedPort) -> ResolvedPort | None:
        """By the last decision: the port with only the frontends that are deferred, None when there are none."""
        ...

    def commit(self, prepared: Decision) -> SyncReport:
        """Carry the decision out."""
        ...


class ResidualDatapath(Generic[Decision]):
    """Rules are there before eBPF stands back from a frontend, and go only after eBPF has taken it over."""

    name = "ebpf"

    def __init__(self, ebpf: DeferringDatapath[Decision], iptables: Datapath) -> None:
        self._ebpf = ebpf
        self._iptables = iptables
        self._table = ServiceTable()
        self._holds_rules = True
        """An earlier process may have left some."""

    def probe(self) -> Support:
        return self._ebpf.probe()

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        prepared = self._ebpf.prepare(table, dirty, full=full)
        services = {*dirty, *table.services, *self._table.services} if full else dirty
        changed = self._changed_residue(table, services)
        writes = self._write_rules({service: ports for service, ports in changed.items() if ports}, full=full)
        report = self._ebpf.commit(prepared)
        writes += self._remove_rules([service for service, ports in changed.items() if not ports])
        return replace(report, writes=report.writes + writes)

    def dump(self) -> str:
        return self._ebpf.dump() + (self._iptables.dump() if self._holds_rules else "")

    def cleanup(self) -> None:
        self._ebpf.cleanup()
        self._iptables.cleanup()

    def _changed_residue(
        self, table: ServiceTable, services: Set[ServiceName]
    ) -> dict[ServiceName, tuple[ResolvedPort, ...]]:
        residues = {service: self._residue_of(table, service) for service in services}
        return {service: ports for service, ports in residues.items() if ports != self._table.ports_of(service)}

    def _residue_of(self, table: ServiceTable, service: ServiceName) -> tuple[ResolvedPort, ...]:
        return tuple(filter(None, map(self._ebpf.residue, table.ports_of(service))))

    def _write_rules(self, changed: dict[ServiceName, tuple[ResolvedPort, ...]], *, full: bool) -> int:
        affected = set().union(*(self._table.replace(service, ports) for service, ports in changed.items()))
        if not self._table.services or not (affected or full):
            return 0
        self._holds_rules = True
        return self._iptables.sync(self._table, affected, full=full).writes

    def _remove_rules(self, services: list[ServiceName]) -> int:
        affected = set().union(*(self._table.replace(service, ()) for service in services))
        if self._table.services:
            return self._iptables.sync(self._table, affected, full=False).writes if affected else 0
        if self._holds_rules:
            self._iptables.cleanup()
            self._holds_rules = False
        return 0
