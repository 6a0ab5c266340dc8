"""The end of the straight line: what a sync did, as health, metrics and answers of health check node ports.

Called by the control loop and the proxier, in their thread; nothing here waits.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from kbpf.clock import Clock
from kbpf.datapath.interface import SyncReport
from kbpf.errors import DatapathError, KbpfError
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.objects import Node
from kbpf.model.table import FrontendKind, Outcome, ResolvedPort, ServiceTable, Target, View
from kbpf.observe.health import HealthTracker
from kbpf.observe.metrics import Metrics
from kbpf.observe.service_health import Hosts, ServiceHealthPorts
from kbpf.proxier import Status
from kbpf.tracking.trackers import ChangeCounts

NOWHERE = Target(View.LOCAL, Outcome.DROP)


class Publisher:
    def __init__(
        self,
        health: HealthTracker,
        metrics: Metrics,
        service_health: ServiceHealthPorts,
        hosts: Callable[[Node | None], Hosts],
        fell_back: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`hosts` says where health check node ports listen; `fell_back` is told why iptables stands in for eBPF."""
        self._hosts = hosts
        self._fell_back = fell_back
        self._fallback_reason = ""
        self.health = health
        self._metrics = metrics
        self._service_health = service_health
        self._clock = clock
        self._local_policies = LocalPolicies()
        self._seen = ChangeCounts()
        self._sync_started = clock.monotonic()
        self.datapath = ""
        """The name of the one in charge. HTTP threads read it, and what follows."""
        self.reason = ""
        """Why it was chosen at the start."""
        self.last: SyncReport | None = None
        self.last_sync: float | None = None

    def running(self, datapath: str, fallback_reason: str, reason: str = "") -> None:
        """Which datapath is in charge, and why not eBPF, if that was wished for; `reason`: why it is."""
        self.datapath = datapath
        self.reason = fallback_reason or reason or self.reason
        self._metrics.own.running(datapath)
        if fallback_reason and fallback_reason != self._fallback_reason:
            self._fallback_reason = fallback_reason
            self._metrics.own.fell_back(fallback_reason)
            self._fell_back(fallback_reason)

    def took(self, counts: ChangeCounts, *, is_eligible: bool) -> None:
        """Events were taken."""
        kube_proxy = self._metrics.kube_proxy
        kube_proxy.service_changes.inc(counts.services - self._seen.services)
        kube_proxy.slice_changes.inc(counts.slices - self._seen.slices)
        self._seen = counts
        self._set_pending(counts)
        self.health.node_eligible(is_eligible)

    def status(self) -> dict[str, object]:
        """The page /status: what the kernel cannot tell about itself. In an HTTP thread."""
        report = self.last
        return {
            "datapath": self.datapath,
            "reason": self.reason,
            "fallbackReason": self._fallback_reason,
            "lastSync": self.last_sync,
            "sentence": report.sentence if report else "",
            "warnings": report.warnings if report else (),
        }

    def queued(self) -> None:
        """A sync was asked for."""
        self.health.queued()
        for family in Family:
            self._metrics.kube_proxy.last_queued.labels(family.value).set(self._clock.now())

    def syncing(self) -> None:
        self._sync_started = self._clock.monotonic()

    def failed(self, error: KbpfError | None) -> None:
        """None: a defect of ours, which no family was written with."""
        self._metrics.own.failures.inc()
        duration_s = self._clock.monotonic() - self._sync_started
        failed = error.families if isinstance(error, DatapathError) else frozenset(Family)
        for family in Family:
            self._metrics.kube_proxy.sync_duration.labels(family.value).observe(duration_s)
        for family in failed if isinstance(error, DatapathError) and error.refused_rules else ():
            self._metrics.kube_proxy.restore_failures.labels(family.value).inc()
        if failed != frozenset(Family):
            self.health.updated(frozenset(Family) - failed)

    def synced(self, status: Status) -> None:
        self.health.updated(status.report.families)
        self.last, self.last_sync = status.report, self._clock.now()
        self._count(status.report)
        self._count_programming(status)
        self._local_policies.update(status.services, status.table)
        self._set_gauges(status)
        self._service_health.synced(status.services, status.table, lambda: self._hosts(status.node))

    def _count(self, report: SyncReport) -> None:
        kube_proxy, own = self._metrics.kube_proxy, self._metrics.own
        self.running(report.datapath, report.fallback_reason)
        own.writes.inc(report.writes)
        for family, each in report.families.items():
            name = family.value
            kube_proxy.sync_duration.labels(name).observe(each.duration_s)
            kind = kube_proxy.full_sync_duration if each.full else kube_proxy.partial_sync_duration
            kind.labels(name).observe(each.duration_s)
            kube_proxy.last_sync.labels(name).set(self._clock.now())
            if each.refused_partial:
                kube_proxy.restore_failures.labels(name).inc()
                kube_proxy.partial_restore_failures.labels(name).inc()
            for table in ("filter", "nat"):
                count = each.rules.get(table)
                kube_proxy.rules_total.labels(table, name).set(count.held if count else 0)
                kube_proxy.rules_last.labels(table, name).set(count.written if count else 0)

    def _count_programming(self, status: Status) -> None:
        kube_proxy, now = self._metrics.kube_proxy, self._clock.now()
        for family, seconds in status.triggers:
            kube_proxy.programming_duration.labels(family.value).observe(max(0.0, now - seconds))
        for cleaned in status.cleaned:
            kube_proxy.conntrack_duration.labels(cleaned.family.value).observe(cleaned.duration_s)
            kube_proxy.conntrack_deleted.labels(cleaned.family.value).inc(cleaned.deleted)

    def _set_gauges(self, status: Status) -> None:
        own, report = self._metrics.own, status.report
        self._set_pending(status.changes)
        own.services.set(len(status.table.services))
        own.service_ports.set(self._local_policies.service_ports)
        own.defers(report.deferred)
        for name, fill in report.maps.items():
            own.map_entries.labels(name).set(fill.used)
            own.map_room.labels(name).set(fill.room)
        for policy in ("internal", "external"):
            for family in Family:
                count = self._local_policies.without_endpoints[policy, family]
                self._metrics.kube_proxy.no_local_endpoints.labels(policy, family.value).set(count)

    def _set_pending(self, counts: ChangeCounts) -> None:
        self._metrics.kube_proxy.services_pending.set(counts.services_pending)
        self._metrics.kube_proxy.slices_pending.set(counts.slices_pending)


class LocalPolicies:
    """How many service ports there are, and which have a policy Local, endpoints, and none of them here.

    Kept by Service, so that a sync costs what changed.
    """

    def __init__(self) -> None:
        self.service_ports = 0
        self.without_endpoints: Counter[tuple[str, Family]] = Counter()
        self._ports: dict[ServiceName, int] = {}
        self._without: dict[ServiceName, list[tuple[str, Family]]] = {}

    def update(self, services: Iterable[ServiceName], table: ServiceTable) -> None:
        for service in services:
            ports = table.ports_of(service)
            self.service_ports += len(ports) - self._ports.pop(service, 0)
            self.without_endpoints.subtract(self._without.pop(service, ()))
            if ports:
                self._ports[service] = len(ports)
            if without := _without_endpoints(ports):
                self._without[service] = without
                self.without_endpoints.update(without)


def _without_endpoints(ports: Iterable[ResolvedPort]) -> list[tuple[str, Family]]:
    found = []
    for port in ports:
        if port.internal == NOWHERE:
            found.append(("internal", port.family))
        if port.external == NOWHERE and any(each.kind is not FrontendKind.CLUSTER_IP for each in port.frontends):
            found.append(("external", port.family))
    return found
