"""Every metric of kbpf: kube-proxy's own under their names, labels and buckets, and kbpf's beside them.

The publisher writes them in the control thread; HTTP threads render them. Labels are bounded: none names a Service, an
endpoint or a client.
"""

import platform
from collections.abc import Mapping
from http import HTTPStatus

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from kbpf import __version__
from kbpf.model.address import Family
from kbpf.observe.client_metrics import ClientMetrics

SYNC_BUCKETS = tuple(0.001 * 2**power for power in range(15))
PROGRAMMING_BUCKETS = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
FAMILY = ("ip_family",)
DATAPATHS = ("ebpf", "iptables")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    def __init__(self) -> None:
        # kube-proxy has none of these, and each would be a series more for every counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.kube_proxy = KubeProxyMetrics(self.registry)
        self.own = OwnMetrics(self.registry)
        self.client = ClientMetrics(self.registry)
        _tell_build(self.registry)
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def answered(self, path: str, status: HTTPStatus) -> None:
        """An answer of the health server."""
        counter = self.kube_proxy.healthz if path == "/healthz" else self.kube_proxy.livez
        counter.labels(str(status.value)).inc()


def _tell_build(registry: CollectorRegistry) -> None:
    """As every component of a cluster does it; dashboards group by git_version."""
    major, minor, *_ = __version__.split(".")
    labels = {
        "major": major,
        "minor": minor,
        "git_version": f"v{__version__}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    build = Gauge("kubernetes_build_info", "Constantly 1; the build in force", tuple(labels), registry=registry)
    build.labels(**labels).set(1)


class KubeProxyMetrics:
    """What dashboards and alerts of kube-proxy look at. eBPF syncs count as well; what speaks of rules means rules."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"kubeproxy_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"kubeproxy_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = SYNC_BUCKETS) -> Histogram:
            return Histogram(f"kubeproxy_{name}", text, FAMILY, buckets=buckets, registry=registry)

        sync = "sync_proxy_rules"
        self.sync_duration = histogram(f"{sync}_duration_seconds", "Duration of a sync, failed ones included")
        self.full_sync_duration = histogram("sync_full_proxy_rules_duration_seconds", "Of full syncs")
        self.partial_sync_duration = histogram("sync_partial_proxy_rules_duration_seconds", "Of partial syncs")
        self.programming_duration = histogram(
            "network_programming_duration_seconds",
            "Time from a change of endpoints to the kernel holding it",
            PROGRAMMING_BUCKETS,
        )
        self.last_sync = gauge(f"{sync}_last_timestamp_seconds", "When a sync last succeeded", FAMILY)
        self.last_queued = gauge(f"{sync}_last_queued_timestamp_seconds", "When a sync was last asked for", FAMILY)
        self.slice_changes = counter(f"{sync}_endpoint_changes_total", "Changes of EndpointSlices")
        self.slices_pending = gauge(f"{sync}_endpoint_changes_pending", "EndpointSlices that wait for a sync")
        self.service_changes = counter(f"{sync}_service_changes_total", "Changes of Services")
        self.services_pending = gauge(f"{sync}_service_changes_pending", "Services that wait for a sync")
        self.no_local_endpoints = gauge(
            f"{sync}_no_local_endpoints_total",
            "Service ports with a policy Local and endpoints, none of them on this node",
            ("traffic_policy", *FAMILY),
        )
        self.restore_failures = counter(f"{sync}_iptables_restore_failures_total", "Refused rules", FAMILY)
        self.partial_restore_failures = counter(
            f"{sync}_iptables_partial_restore_failures_total", "Refused rules of partial syncs", FAMILY
        )
        self.rules_total = gauge(f"{sync}_iptables_total", "Rules in our chains", ("table", *FAMILY))
        self.rules_last = gauge(f"{sync}_iptables_last", "Rules that the last sync wrote", ("table", *FAMILY))
        self.healthz = counter("proxy_healthz_total", "Answers of /healthz", ("code",))
        self.livez = counter("proxy_livez_total", "Answers of /livez", ("code",))
        self.conntrack_duration = histogram(
            "conntrack_reconciler_sync_duration_seconds", "Duration of a look for stale UDP flows"
        )
        self.conntrack_deleted = counter(
            "conntrack_reconciler_deleted_entries_total", "Stale UDP flows that were forgotten", FAMILY
        )
        for family in Family:
            self.restore_failures.labels(family.value)
            self.partial_restore_failures.labels(family.value)


class OwnMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"kbpf_{name}", text, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"kbpf_{name}", text, labels, registry=registry)

        self.build = gauge("build_info", "Constantly 1; the version in force", ("version",))
        self.build.labels(__version__).set(1)
        self.datapath = gauge("datapath_active", "1 for the datapath in charge, 0 for the other", ("datapath",))
        self.fallback = gauge("fallback_info", "1 with the reason why iptables stands in for eBPF", ("reason",))
        self.services = gauge("services", "Services that this node serves")
        self.service_ports = gauge("service_ports", "Service ports that this node serves, each IP family for itself")
        self.deferred = gauge("deferred_frontends", "Frontends that eBPF leaves to iptables", ("reason",))
        self.map_entries = gauge("map_entries", "Entries in a BPF map", ("map",))
        self.map_room = gauge("map_max_entries", "Entries that a BPF map has room for", ("map",))
        self.writes = counter("kernel_writes_total", "Rules and map entries written or deleted")
        self.failures = counter("sync_failures_total", "Syncs that failed")
        self._reasons: set[str] = set()

    def running(self, datapath: str) -> None:
        for each in DATAPATHS:
            self.datapath.labels(each).set(each == datapath)

    def fell_back(self, reason: str) -> None:
        self.fallback.clear()
        if reason:
            self.fallback.labels(reason).set(1)

    def defers(self, frontends: Mapping[str, int]) -> None:
        """A reason that is gone stays as zero, so that no scrape misses it."""
        self._reasons |= frontends.keys()
        for reason in self._reasons:
            self.deferred.labels(reason).set(frontends.get(reason, 0))
