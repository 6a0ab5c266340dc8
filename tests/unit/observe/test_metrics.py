"""Metrics: kube-proxy's by name, type, labels and buckets; what a parser and the naming rules say of all of them."""

import re
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kbpf import __version__
from kbpf.clock import FakeClock
from kbpf.datapath.interface import FamilyReport, MapFill, RuleCount, SyncReport
from kbpf.errors import DatapathError
from kbpf.host.udp_cleanup import CleanedFlows
from kbpf.model.address import Family
from kbpf.model.objects import SlicePort
from kbpf.model.table import ServiceTable
from kbpf.observe.health import HealthTracker
from kbpf.observe.kernel_metrics import KernelCollector, KernelReaders
from kbpf.observe.metrics import Metrics
from kbpf.observe.service_health import ServiceHealthPorts
from kbpf.observe.staleness import StalenessCollector
from kbpf.proxier import Status
from kbpf.publisher import Publisher
from kbpf.tracking.trackers import ChangeCounts
from kbpf.tracking.trigger_times import TriggerTime
from tests.builders import endpoint, endpoint_slice, port, service, service_name, slice_port, table_of

WEB = service_name("web")
KUBE_PROXY = [
    (f"kubeproxy_{name}", type_, tuple(labels))
    for name, type_, *labels in (
        line.split()
        for line in (Path(__file__).parents[2] / "data" / "metrics.txt").read_text().splitlines()
        if not line.startswith("#")
    )
]
READERS = KernelReaders(
    lambda: {"chosen": 5},
    lambda: {"reversed": 7},
    lambda: (10, 262144, 4),
    lambda: {"ct_state_invalid_dropped_pkts": 3, "of-others": 9},
)


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.fallbacks: list[str] = []
        self.metrics.registry.register(KernelCollector(READERS))
        self.health = HealthTracker(self.clock, timeout_s=60)
        self.metrics.registry.register(StalenessCollector(lambda: {"services": 12.5}, self.health.waiting_s))
        ports = ServiceHealthPorts(self.health, lambda service, port, reason: None)
        self.publisher = Publisher(self.health, self.metrics, ports, lambda own: {}, self.fallbacks.append, self.clock)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def of_ipv4(self, name: str, **labels: str) -> float | None:
        return self.value(f"kubeproxy_{name}", ip_family="IPv4", **labels)

    def synced(self, report: SyncReport | None = None, table: ServiceTable | None = None, **status: object) -> None:
        fields = {"services": frozenset({WEB}), "changes": ChangeCounts()} | status
        self.publisher.synced(Status(report or partial(), table or ServiceTable(), **fields))  # type: ignore[arg-type]


def partial(**fields: object) -> SyncReport:
    families = {family: FamilyReport(0.002, False) for family in Family}
    return SyncReport("ebpf", False, 1, 3, 0.002, **({"families": families} | fields))  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """Every series has come about."""
    rules = {"filter": RuleCount(12, 2), "nat": RuleCount(40, 0)}
    families = {family: FamilyReport(0.5, True, rules, refused_partial=True) for family in Family}
    rig.publisher.running("iptables", "eBPF is unavailable: no bpffs")
    rig.publisher.queued()
    rig.publisher.took(ChangeCounts(5, 7, 1, 2), is_eligible=True)
    rig.synced(
        partial(families=families, deferred={"sctp": 2}, maps={"backends": MapFill(3, 65536)}),
        triggers=tuple(TriggerTime(family, rig.clock.now() - 2) for family in Family),
        cleaned=tuple(CleanedFlows(family, 4, 0.01) for family in Family),
    )
    rig.synced()
    for path in ("/healthz", "/livez"):
        rig.metrics.answered(path, HTTPStatus.OK)
    rig.metrics.client.asked("GET", "10.0.0.1:6443", 200, 0.1)
    return rig


@pytest.mark.parametrize(("name", "type_", "labels"), KUBE_PROXY)
def test_every_metric_of_kube_proxy_is_there(busy: Rig, name: str, type_: str, labels: tuple[str, ...]):
    families = {family.name: family for family in busy.metrics.registry.collect()}
    family = families[name.removesuffix("_total") if type_ == "counter" else name]
    assert family.type == type_
    found = {tuple(key for key in sample.labels if key != "le") for sample in family.samples}
    assert found == {labels}


def test_there_is_no_metric_of_kube_proxy_that_the_list_does_not_have(busy: Rig):
    found = {family.name for family in text_string_to_metric_families(busy.metrics.text().decode())}
    listed = {name.removesuffix("_total") if type_ == "counter" else name for name, type_, _ in KUBE_PROXY}
    assert {name for name in found if name.startswith("kubeproxy_")} == listed


def test_the_buckets_are_kube_proxy_s(busy: Rig):
    def bounds(name: str) -> list[float]:
        text = busy.metrics.text().decode()
        found = re.findall(rf'^kubeproxy_{name}_bucket{{ip_family="IPv4",le="([^"]*)"}}', text, re.MULTILINE)
        return [float(bound) for bound in found]

    assert bounds("sync_proxy_rules_duration_seconds")[:3] == [0.001, 0.002, 0.004]
    assert bounds("sync_proxy_rules_duration_seconds")[-2] == 16.384
    programming = bounds("network_programming_duration_seconds")
    assert programming[:4] == [0.25, 0.5, 1, 2]
    assert programming[60:65] == [59, 60, 65, 70, 75]
    assert programming[-4:] == [240, 270, 300, float("inf")]


def test_the_text_follows_the_rules_of_the_format_and_of_names(busy: Rig):
    """What `promtool check metrics` looks at: help, base units, suffixes that fit the type, labels without the name."""
    for family in text_string_to_metric_families(busy.metrics.text().decode()):
        assert family.documentation, family.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert not re.search(r"_(milliseconds|minutes|kilobytes|mb|ms|percent)(_|$)", family.name), family.name
        assert not family.name.endswith(("_counter", "_gauge", "_histogram")), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name
        if family.type == "gauge" and family.name.startswith("kbpf_"):
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith("_total"), sample.name
            assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in sample.labels)


def test_series_do_not_grow_with_the_cluster(rig: Rig):
    def series() -> int:
        return sum(len(family.samples) for family in rig.metrics.registry.collect())

    rig.synced(table=table_of(service("web")))
    before = series()
    for number in range(50):
        name = service_name(f"web{number}")
        rig.synced(table=table_of(service(name.name), endpoint_slice(name.name, "10.42.1.5")), services={name})
        rig.synced(services={name})
    assert series() == before


# -- of the API server -------------------------------------------------------------------------------------------------


def test_requests_to_the_api_server_are_counted_as_every_client_does(rig: Rig):
    rig.metrics.client.asked("GET", "10.0.0.1:6443", 200, 0.03)
    rig.metrics.client.asked("GET", "10.0.0.1:6443", None, 10.0)
    ours = {"method": "GET", "host": "10.0.0.1:6443"}
    assert rig.value("rest_client_requests_total", code="200", **ours) == 1
    assert rig.value("rest_client_requests_total", code="<error>", **ours) == 1
    assert rig.value("rest_client_request_duration_seconds_count", verb="GET", host="10.0.0.1:6443") == 2
    assert rig.value("rest_client_request_duration_seconds_bucket", verb="GET", host="10.0.0.1:6443", le="0.1") == 1


def test_staleness_is_the_silence_of_the_source_and_the_age_of_what_waits(rig: Rig):
    assert rig.value("kbpf_source_silence_seconds", resource="services") == 12.5
    assert rig.value("kbpf_oldest_change_seconds") == 0
    rig.publisher.queued()
    rig.clock.advance(3)
    rig.publisher.queued()
    assert rig.value("kbpf_oldest_change_seconds") == 3
    rig.synced()
    assert rig.value("kbpf_oldest_change_seconds") == 0


def test_the_build_is_told_as_by_every_component(rig: Rig):
    text = rig.metrics.text().decode()
    assert re.search(rf'^kubernetes_build_info{{.*git_version="v{re.escape(__version__)}".*}} 1.0$', text, re.MULTILINE)


# -- what a sync leaves ------------------------------------------------------------------------------------------------


def test_rules_in_the_kernel_are_told_from_rules_written(rig: Rig):
    rules = {"filter": RuleCount(12, 2), "nat": RuleCount(60000, 12)}
    rig.synced(partial(families={Family.IPV4: FamilyReport(0.5, False, rules)}))
    assert rig.of_ipv4("sync_proxy_rules_iptables_total", table="nat") == 60000
    assert rig.of_ipv4("sync_proxy_rules_iptables_last", table="nat") == 12
    assert rig.value("kubeproxy_sync_proxy_rules_iptables_total", table="nat", ip_family="IPv6") is None


def test_full_and_partial_syncs_are_told_apart(rig: Rig):
    rig.synced(partial(families={Family.IPV4: FamilyReport(0.5, True)}))
    rig.synced(partial(families={Family.IPV4: FamilyReport(0.003, False)}))
    assert rig.of_ipv4("sync_proxy_rules_duration_seconds_count") == 2
    assert rig.of_ipv4("sync_full_proxy_rules_duration_seconds_sum") == 0.5
    assert rig.of_ipv4("sync_partial_proxy_rules_duration_seconds_sum") == 0.003
    assert rig.of_ipv4("sync_proxy_rules_last_timestamp_seconds") == rig.clock.now()


def test_the_time_since_a_change_is_observed_once_it_is_in_the_kernel(rig: Rig):
    rig.synced(triggers=(TriggerTime(Family.IPV4, rig.clock.now() - 2), TriggerTime(Family.IPV4, rig.clock.now() + 1)))
    assert rig.of_ipv4("network_programming_duration_seconds_count") == 2
    assert rig.of_ipv4("network_programming_duration_seconds_sum") == 2


def test_service_ports_without_local_endpoints_are_counted_until_they_have_some(rig: Rig):
    ports = (port(80, "a"), port(81, "b"))
    local = service("web", *ports, type="LoadBalancer", external_traffic_policy="Local", ingress=["203.0.113.7"])
    elsewhere = [endpoint_slice("web", endpoint("10.42.2.5", "n2"), ports=[_port("a"), _port("b")])]
    rig.synced(table=table_of(local, *elsewhere))
    name = "sync_proxy_rules_no_local_endpoints_total"
    assert rig.of_ipv4(name, traffic_policy="external") == 2
    assert rig.of_ipv4(name, traffic_policy="internal") == 0
    rig.synced(table=table_of(local, endpoint_slice("web", "10.42.1.5", ports=[_port("a")])))
    assert rig.of_ipv4(name, traffic_policy="external") == 0
    assert rig.value("kbpf_service_ports") == 2
    rig.synced()
    assert (rig.value("kbpf_service_ports"), rig.value("kbpf_services")) == (0, 0)


def _port(name: str) -> SlicePort:
    return slice_port(8080, name)


def test_changes_and_what_waits_are_counted(rig: Rig):
    rig.publisher.took(ChangeCounts(5, 7, 1, 2), is_eligible=True)
    rig.publisher.took(ChangeCounts(6, 7, 2, 2), is_eligible=True)
    assert rig.value("kubeproxy_sync_proxy_rules_service_changes_total") == 6
    assert rig.value("kubeproxy_sync_proxy_rules_endpoint_changes_total") == 7
    assert rig.value("kubeproxy_sync_proxy_rules_service_changes_pending") == 2
    rig.synced(changes=ChangeCounts(6, 7, 0, 0))
    assert rig.value("kubeproxy_sync_proxy_rules_service_changes_pending") == 0


def test_refused_rules_are_counted_for_their_family_and_the_other_stays_healthy(rig: Rig):
    rig.synced()
    rig.publisher.queued()
    error = DatapathError("IPv6: no")
    error.families, error.refused_rules = frozenset({Family.IPV6}), True
    rig.clock.advance(60)
    rig.publisher.failed(error)
    failures = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
    assert (rig.value(failures, ip_family="IPv4"), rig.value(failures, ip_family="IPv6")) == (0, 1)
    health = rig.health.snapshot()
    assert (health.families[Family.IPV4].is_healthy, health.families[Family.IPV6].is_healthy) == (True, False)


def test_a_refused_partial_sync_counts_although_the_full_one_succeeded(rig: Rig):
    rig.synced(partial(families={Family.IPV4: FamilyReport(0.5, True, refused_partial=True)}))
    assert rig.of_ipv4("sync_proxy_rules_iptables_restore_failures_total") == 1
    assert rig.of_ipv4("sync_proxy_rules_iptables_partial_restore_failures_total") == 1


def test_the_datapath_in_charge_and_the_reason_of_a_fallback(rig: Rig):
    rig.publisher.running("ebpf", "")
    assert [rig.value("kbpf_datapath_active", datapath=name) for name in ("ebpf", "iptables")] == [1, 0]
    rig.synced(SyncReport("iptables", True, 1, 1, 0.1, fallback_reason="ebpf failed: no room"))
    assert rig.value("kbpf_datapath_active", datapath="iptables") == 1
    assert rig.value("kbpf_fallback_info", reason="ebpf failed: no room") == 1
    assert rig.publisher.datapath == "iptables"


def test_a_reason_that_defers_nothing_any_more_stays_as_zero(rig: Rig):
    rig.synced(partial(deferred={"sctp": 2}, maps={"backends": MapFill(3, 65536)}))
    rig.synced()
    assert rig.value("kbpf_deferred_frontends", reason="sctp") == 0
    assert rig.value("kbpf_map_entries", map="backends") == 3
    assert rig.value("kbpf_map_max_entries", map="backends") == 65536


def test_what_the_kernel_counts_is_read_when_somebody_asks(rig: Rig):
    assert rig.value("kbpf_hook_results_total", reason="chosen") == 5
    assert rig.value("kbpf_packet_results_total", reason="reversed") == 7
    assert rig.value("kubeproxy_iptables_ct_state_invalid_dropped_packets_total") == 3
    assert rig.value("kubeproxy_iptables_localhost_nodeports_accepted_packets_total") == 0
    assert rig.value("kbpf_conntrack_entries") == 10
    assert rig.value("kbpf_conntrack_insert_failed_total") == 4


def test_a_kernel_without_any_of_it_is_no_error():
    registry = Metrics().registry
    registry.register(KernelCollector(KernelReaders(dict, dict, lambda: None, dict)))
    assert registry.get_sample_value("kbpf_conntrack_entries") is None
    assert registry.get_sample_value("kubeproxy_iptables_ct_state_invalid_dropped_packets_total") == 0
