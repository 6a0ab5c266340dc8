"""eBPF for everything that it treats exactly like kube-proxy, iptables for the few frontends that it defers.

The residue is a ServiceTable of its own, holding only deferred frontends; while it is empty there is no rule of ours in
netfilter at all, so that in-cluster traffic meets neither nat nor conntrack. While the packet path relies on the kernel
to masquerade, the rules that do not depend on services stand alone. After rules were there it takes longer: connections
that they translated live on only while some rule keeps conntrack at work, so the last ones wait for them.

With `holds_all` the residue is everything, as a safety net beneath eBPF.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from kbpf.datapath.interface import Datapath, FamilyReport, RuleCount, Support, SyncReport
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ResolvedPort, ServiceTable


class SyncDecision(Protocol):
    """A sync that is decided and not yet carried out."""

    @property
    def services(self) -> Set[ServiceName]:
        """Every service that was decided anew, dirty or not."""
        ...

    @property
    def masquerades(self) -> bool:
        """Marked packets rely on the rule that masquerades them, and on those that let them pass."""
        ...


Decision = TypeVar("Decision", bound=SyncDecision)


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

    def __init__(
        self,
        ebpf: DeferringDatapath[Decision],
        iptables: Datapath,
        has_translated_flows: Callable[[], bool],
        *,
        holds_all: bool = False,
    ) -> None:
        """`has_translated_flows`: are there connections whose packets only conntrack gets to their backend?

        `holds_all`: every frontend stands in the rules as well, for the moment when the programs are not in force.
        """
        self._holds_all = holds_all
        self._ebpf = ebpf
        self._iptables = iptables
        self._has_translated_flows = has_translated_flows
        self._table = ServiceTable()
        self._masquerades = False
        self._has_synced = False
        self._holds_rules = True
        """An earlier process may have left some."""
        self._rules: dict[Family, Mapping[str, RuleCount]] = {}

    @property
    def _needs_rules(self) -> bool:
        """The rules that stand whatever the services are enough to masquerade."""
        return bool(self._table.services) or self._masquerades

    def probe(self) -> Support:
        return self._ebpf.probe()

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        prepared = self._ebpf.prepare(table, dirty, full=full)
        services = {*dirty, *prepared.services, *(self._table.services if full else ())}
        changed = self._changed_residue(table, services)
        self._masquerades = prepared.masquerades
        needed = {service: ports for service, ports in changed.items() if ports}
        if (needed or self._masquerades) and self._follows_rules():
            report = self._ebpf.commit(prepared)
            written = self._write_rules(needed, full=True)
        else:
            written = self._write_rules(needed, full=full)
            report = self._ebpf.commit(prepared)
        self._has_synced = True
        removed = self._remove_rules([service for service, ports in changed.items() if not ports])
        return self._joined(report, written, removed)

    def lost(self) -> tuple[str, ...]:
        return self._ebpf.lost() + (self._iptables.lost() if self._needs_rules else ())

    def examine(self) -> Iterator[tuple[str, ...]] | None:
        steps = self._ebpf.examine()
        return None if steps is None else self._examine(steps)

    def dump(self) -> str:
        return self._ebpf.dump() + (self._iptables.dump() if self._holds_rules else "")

    def cleanup(self) -> None:
        self._ebpf.cleanup()
        self._iptables.cleanup()

    def _examine(self, steps: Iterator[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
        yield from steps
        if self._needs_rules:
            # The rules are few, as a rule; and to look at all of them is to bring them in step.
            yield ("rules",) if self._iptables.sync(self._table, frozenset(), full=True).writes else ()

    def _follows_rules(self) -> bool:
        """Is this the first sync, on a node where rules of an earlier process may carry every service? Then writing the
        residue takes those away, and eBPF must be there before."""
        return not self._has_synced and bool(self._iptables.dump())

    def _changed_residue(
        self, table: ServiceTable, services: Set[ServiceName]
    ) -> dict[ServiceName, tuple[ResolvedPort, ...]]:
        residues = {service: self._residue_of(table, service) for service in services}
        return {service: ports for service, ports in residues.items() if ports != self._table.ports_of(service)}

    def _residue_of(self, table: ServiceTable, service: ServiceName) -> tuple[ResolvedPort, ...]:
        if self._holds_all:
            return table.ports_of(service)
        return tuple(filter(None, map(self._ebpf.residue, table.ports_of(service))))

    def _write_rules(self, changed: dict[ServiceName, tuple[ResolvedPort, ...]], *, full: bool) -> SyncReport | None:
        affected = self._replace(changed)
        is_first = not self._holds_rules
        if not self._needs_rules or not (affected or full or is_first):
            return None
        self._holds_rules = True
        return self._iptables.sync(self._table, affected, full=full or is_first)

    def _remove_rules(self, services: list[ServiceName]) -> SyncReport | None:
        affected = self._replace(dict.fromkeys(services, ()))
        if self._needs_rules:
            return self._iptables.sync(self._table, affected, full=False) if affected else None
        return self._retire() if self._holds_rules else None

    def _retire(self) -> SyncReport | None:
        """No rule is needed any more. While connections are, what stays is what a node without Services has."""
        if self._has_translated_flows():
            return self._iptables.sync(self._table, frozenset(), full=True)
        self._iptables.cleanup()
        self._holds_rules = False
        self._rules = {}
        return None

    def _replace(self, changed: Mapping[ServiceName, tuple[ResolvedPort, ...]]) -> set[ServiceName]:
        return set().union(*(self._table.replace(service, ports) for service, ports in changed.items()))

    def _joined(self, ebpf: SyncReport, written: SyncReport | None, removed: SyncReport | None) -> SyncReport:
        """One report for both: eBPF looked at every service, and its duration includes the rules written in between."""
        rules = [report for report in (written, removed) if report is not None]
        return replace(
            ebpf,
            writes=ebpf.writes + sum(report.writes for report in rules),
            duration_s=ebpf.duration_s + (removed.duration_s if removed else 0.0),
            warnings=(*ebpf.warnings, *(warning for report in rules for warning in report.warnings)),
            families=self._families(ebpf, rules),
        )

    def _families(self, ebpf: SyncReport, rules: list[SyncReport]) -> dict[Family, FamilyReport]:
        """Those of eBPF, each with the rules that are there; what no sync has written now was written before."""
        held = {
            family: {table: RuleCount(count.held, 0) for table, count in counts.items()}
            for family, counts in self._rules.items()
        }
        self._rules = {**held, **{family: each.rules for report in rules for family, each in report.families.items()}}
        refused = {family for report in rules for family, each in report.families.items() if each.refused_partial}
        return {
            family: replace(each, rules=self._rules.get(family, {}), refused_partial=family in refused)
            for family, each in ebpf.families.items()
        }
