"""The reference model against the packet-level semantics, row by row.

The truth table of the traffic policies has a file of its own; this one is about look-up, masquerade and source ranges.
"""

import pytest

from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Origin, Verdict
from kbpf.model.names import Protocol
from kbpf.model.objects import EndpointSlice, LoadBalancerIngress, Service
from kbpf.model.table import Backend
from kbpf.policy.reference import ReferenceNode, expected_verdict
from tests.builders import endpoint, endpoint_slice, flow, port, service, table_of

NODE_IP, CLUSTER_IP, EXTERNAL_IP, VIP = "192.168.60.11", "10.96.0.10", "203.0.113.6", "203.0.113.5"
HERE, THERE = Backend(Address("10.42.1.5"), 8080, True), Backend(Address("10.42.2.5"), 8080, False)
SLICE = endpoint_slice("web", "10.42.1.5", endpoint("10.42.2.5", "n2"))
REMOTE = endpoint_slice("web", endpoint("10.42.2.5", "n2"))

POD, OTHER_POD = (Origin.POD, "10.42.1.9"), (Origin.OUTSIDE, "10.42.2.9")
HOST, LOOPBACK = (Origin.HOST, NODE_IP), (Origin.HOST, "127.0.0.1")
OUTSIDE = (Origin.OUTSIDE, "198.51.100.7")
EVERYBODY = (POD, OTHER_POD, HOST, OUTSIDE)

CLUSTER_CIDR = {Family.IPV4: LocalDetector(cidr="10.42.0.0/16")}
INTERFACE = {Family.IPV4: LocalDetector(interface="veth+")}
NO_DETECTOR: dict[Family, LocalDetector] = {}


def node(detectors: dict[Family, LocalDetector] = CLUSTER_CIDR, masquerade_all: bool = False) -> ReferenceNode:
    return ReferenceNode(
        local_addresses=frozenset(map(Address, (NODE_IP, "127.0.0.1"))),
        node_port_addresses=frozenset({Address(NODE_IP)}),
        node_ips=frozenset({Address(NODE_IP)}),
        detectors=detectors,
        masquerade_all=masquerade_all,
    )


def exposed(external: str = "Cluster", **spec: object) -> Service:
    return service(
        "web",
        port(80, node_port=30080),
        type="LoadBalancer",
        ingress=[VIP],
        external_ips=[EXTERNAL_IP],
        external_traffic_policy=external,
        health_check_node_port=32100,
        **spec,
    )


def verdict(each: Flow, *objects: Service | EndpointSlice, at: ReferenceNode | None = None) -> Verdict:
    return expected_verdict(table_of(*objects), each, at or node())


def external_flows(source: tuple[Origin, str]) -> list[Flow]:
    return [flow(*source, *place) for place in ((NODE_IP, 30080), (EXTERNAL_IP, 80), (VIP, 80))]


# -- ClusterIP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "detectors", "masquerade_all", "masquerade"),
    [
        (POD, CLUSTER_CIDR, False, False),
        (OTHER_POD, CLUSTER_CIDR, False, False),
        (HOST, CLUSTER_CIDR, False, True),
        (LOOPBACK, CLUSTER_CIDR, False, True),
        (OUTSIDE, CLUSTER_CIDR, False, True),
        (POD, INTERFACE, False, False),
        (OTHER_POD, INTERFACE, False, True),
        (HOST, INTERFACE, False, True),
        (OUTSIDE, INTERFACE, False, True),
        (POD, NO_DETECTOR, False, False),
        (HOST, NO_DETECTOR, False, False),
        (OUTSIDE, NO_DETECTOR, False, False),
        (POD, CLUSTER_CIDR, True, True),
        (POD, NO_DETECTOR, True, True),
        (HOST, NO_DETECTOR, True, True),
    ],
)
def test_cluster_ip_masquerades_what_the_detector_does_not_call_local(
    source: tuple[Origin, str], detectors: dict[Family, LocalDetector], masquerade_all: bool, masquerade: bool
):
    found = verdict(flow(*source, CLUSTER_IP), service("web"), SLICE, at=node(detectors, masquerade_all))
    assert found == Verdict(Action.FORWARD, frozenset({HERE, THERE}), masquerade)


def test_detectors_are_chosen_by_family():
    made = service(cluster_ips=["fd96::10"])
    endpoints = endpoint_slice("web", "fd42::5", family="IPv6")
    detectors = CLUSTER_CIDR | {Family.IPV6: LocalDetector(cidr="fd42::/16")}
    pod, outside = flow(Origin.POD, "fd42::9", "fd96::10"), flow(Origin.OUTSIDE, "2001:db8::7", "fd96::10")
    assert [verdict(each, made, endpoints, at=node(detectors)).masquerade for each in (pod, outside)] == [False, True]
    assert not verdict(outside, made, endpoints, at=node(CLUSTER_CIDR)).masquerade


# -- node ports, external IPs, load balancer IPs ---------------------------------------------------------------------


@pytest.mark.parametrize("detectors", [CLUSTER_CIDR, NO_DETECTOR], ids=["detector", "no detector"])
@pytest.mark.parametrize("source", EVERYBODY)
def test_external_policy_cluster_always_masquerades(source: tuple[Origin, str], detectors: dict[Family, LocalDetector]):
    for each in external_flows(source):
        found = verdict(each, exposed(), SLICE, at=node(detectors))
        assert found == Verdict(Action.FORWARD, frozenset({HERE, THERE}), masquerade=True)


@pytest.mark.parametrize(
    ("source", "detectors", "backends", "masquerade"),
    [
        (POD, CLUSTER_CIDR, {HERE, THERE}, False),
        (OTHER_POD, CLUSTER_CIDR, {HERE, THERE}, False),
        (HOST, CLUSTER_CIDR, {HERE, THERE}, True),
        (LOOPBACK, CLUSTER_CIDR, {HERE, THERE}, True),
        (OUTSIDE, CLUSTER_CIDR, {HERE}, False),
        (POD, INTERFACE, {HERE, THERE}, False),
        (OTHER_POD, INTERFACE, {HERE}, False),
        (HOST, INTERFACE, {HERE, THERE}, True),
        (POD, NO_DETECTOR, {HERE}, False),
        (HOST, NO_DETECTOR, {HERE, THERE}, True),
        (OUTSIDE, NO_DETECTOR, {HERE}, False),
    ],
)
def test_external_policy_local_keeps_the_client_address_and_spares_the_inside(
    source: tuple[Origin, str], detectors: dict[Family, LocalDetector], backends: set[Backend], masquerade: bool
):
    for each in external_flows(source):
        found = verdict(each, exposed("Local"), SLICE, at=node(detectors))
        assert found == Verdict(Action.FORWARD, frozenset(backends), masquerade)


def test_without_a_local_endpoint_only_the_outside_is_dropped():
    for source, expected in ((POD, Action.FORWARD), (HOST, Action.FORWARD), (OUTSIDE, Action.DROP)):
        for each in external_flows(source):
            assert verdict(each, exposed("Local"), REMOTE).action is expected


def test_external_policy_local_never_narrows_the_cluster_ip():
    assert verdict(flow(*POD, CLUSTER_IP), exposed("Local"), REMOTE).backends == {THERE}


def test_internal_policy_local_never_narrows_the_outside():
    made = exposed(internal_traffic_policy="Local")
    assert verdict(flow(*POD, CLUSTER_IP), made, REMOTE) == DROP
    for each in external_flows(OUTSIDE):
        assert verdict(each, made, REMOTE).backends == {THERE}


@pytest.mark.parametrize("external", ["Cluster", "Local"])
@pytest.mark.parametrize("source", EVERYBODY)
def test_every_frontend_of_a_service_without_endpoints_rejects(source: tuple[Origin, str], external: str):
    node_port, external_ip, vip = external_flows(source)
    for each in (flow(*source, CLUSTER_IP), node_port):
        assert verdict(each, exposed(external)) == REJECT
    for each in (external_ip, vip):  # kube-proxy has no rule for what the node itself sends out
        assert verdict(each, exposed(external)) == (PASS if source == HOST else REJECT)


# -- source ranges ---------------------------------------------------------------------------------------------------


def guarded(*ranges: str, external: str = "Cluster") -> Service:
    return exposed(external, load_balancer_source_ranges=list(ranges))


@pytest.mark.parametrize("source", EVERYBODY)
def test_whoever_is_outside_the_source_ranges_is_dropped_at_the_vip_and_only_there(source: tuple[Origin, str]):
    node_port, external_ip, vip = external_flows(source)
    made = guarded("192.0.2.0/24")
    assert verdict(vip, made, SLICE) == DROP
    for each in (node_port, external_ip, flow(*source, CLUSTER_IP)):
        assert verdict(each, made, SLICE).action is Action.FORWARD


@pytest.mark.parametrize("external", ["Cluster", "Local"])
def test_within_the_source_ranges_the_policy_decides(external: str):
    for source, cidr in ((OUTSIDE, "198.51.100.0/24"), (POD, "10.42.0.0/16"), (HOST, "192.168.60.0/24")):
        each = flow(*source, VIP)
        assert verdict(each, guarded("192.0.2.0/24", cidr, external=external), SLICE) == verdict(
            each, exposed(external), SLICE
        )


def test_within_the_source_ranges_a_missing_local_endpoint_still_drops():
    assert verdict(flow(*OUTSIDE, VIP), guarded("198.51.100.0/24", external="Local"), REMOTE) == DROP


def test_ranges_of_everything_or_of_the_other_family_filter_nothing():
    for cidr in ("0.0.0.0/0", "2001:db8::/32"):
        assert verdict(flow(*OUTSIDE, VIP), guarded(cidr), SLICE).action is Action.FORWARD
    assert verdict(flow(*OUTSIDE, VIP), guarded("192.0.2.0/24", "0.0.0.0/0"), SLICE).action is Action.FORWARD


def test_a_node_within_the_ranges_may_use_the_vip_as_its_own_source():
    own = flow(Origin.HOST, VIP, VIP)
    assert verdict(own, guarded("192.168.60.0/24"), SLICE).action is Action.FORWARD
    assert verdict(own, guarded("192.0.2.0/24"), SLICE) == DROP


def test_ranges_do_not_turn_a_rejection_into_a_drop():
    """Without endpoints there is no rule that filters, only the one that rejects."""
    assert verdict(flow(*OUTSIDE, VIP), guarded("192.0.2.0/24")) == REJECT


def test_ranges_of_one_service_leave_another_on_the_same_address_alone():
    open_ = service("open", port(80), type="LoadBalancer", ingress=[VIP])
    closed = service("closed", port(8443), type="LoadBalancer", cluster_ips=["10.96.0.11"], ingress=[VIP],
                     load_balancer_source_ranges=["192.0.2.0/24"])  # fmt: skip
    slices = (endpoint_slice("open", "10.42.1.5"), endpoint_slice("closed", "10.42.1.5"))
    assert verdict(flow(*OUTSIDE, VIP, 80), open_, closed, *slices).action is Action.FORWARD
    assert verdict(flow(*OUTSIDE, VIP, 8443), open_, closed, *slices) == DROP


# -- look-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "each",
    [
        flow(*POD, CLUSTER_IP, 81),
        flow(*POD, CLUSTER_IP, 80, Protocol.UDP),
        flow(*POD, "10.96.0.11"),
        flow(*POD, CLUSTER_IP, 30080),
        flow(*OUTSIDE, NODE_IP, 80),
        flow(*OUTSIDE, NODE_IP, 22),
        flow(*OUTSIDE, "192.168.60.12", 30080),
        flow(*HOST, "127.0.0.1", 30080),
        flow(*OUTSIDE, VIP, 22),
    ],
)
def test_what_is_no_frontend_passes(each: Flow):
    assert verdict(each, exposed(), SLICE) == PASS


def test_a_service_that_is_gone_passes():
    assert verdict(flow(*POD, CLUSTER_IP), SLICE) == PASS


def test_an_exact_address_comes_before_the_node_port():
    taker = service("a", port(30080), cluster_ips=["10.96.0.11"], external_ips=[NODE_IP])
    found = verdict(flow(*OUTSIDE, NODE_IP, 30080), exposed(), SLICE, taker, endpoint_slice("a", "10.42.1.77"))
    assert [backend.address for backend in found.backends] == ["10.42.1.77"]


def test_a_node_port_is_open_per_protocol():
    made = service("web", port(53, "u", "UDP", 30053), port(54, "t", "TCP", 30053), type="NodePort")
    assert verdict(flow(*OUTSIDE, NODE_IP, 30053, Protocol.UDP), made) == REJECT
    assert verdict(flow(*OUTSIDE, NODE_IP, 30053, Protocol.SCTP), made) == PASS


def test_a_proxy_mode_load_balancer_ip_is_left_to_the_load_balancer():
    made = service(type="LoadBalancer", ingress=[LoadBalancerIngress(VIP, "Proxy")])
    for source in EVERYBODY:
        assert verdict(flow(*source, VIP), made, SLICE) == PASS


def test_a_shared_address_is_answered_by_its_owner():
    objects = [
        service(name, cluster_ips=[f"10.96.0.{number}"], external_ips=[EXTERNAL_IP])
        for number, name in ((21, "b"), (20, "a"))
    ]
    slices = [endpoint_slice("a", "10.42.1.20"), endpoint_slice("b", "10.42.1.21")]
    found = verdict(flow(*OUTSIDE, EXTERNAL_IP), *objects, *slices)
    assert [backend.address for backend in found.backends] == ["10.42.1.20"]
    found = verdict(flow(*OUTSIDE, EXTERNAL_IP), objects[0], *slices)
    assert [backend.address for backend in found.backends] == ["10.42.1.21"]


# -- hairpin ---------------------------------------------------------------------------------------------------------


def test_a_backend_that_reaches_itself_is_masqueraded():
    each = flow(Origin.POD, "10.42.1.5", CLUSTER_IP)
    found = verdict(each, service("web"), SLICE)
    assert not found.masquerade
    assert [found.is_masqueraded(each, backend) for backend in (HERE, THERE)] == [True, False]
    assert Verdict(Action.FORWARD, frozenset({HERE}), masquerade=True).is_masqueraded(flow(*POD, CLUSTER_IP), HERE)


def test_a_backend_on_the_nodes_own_network_sees_callers_as_they_are_unless_the_node_calls_itself():
    own = Backend(Address("192.168.60.11"), 8080)
    made = service("web", port(80, node_port=30080), type="NodePort")
    endpoints = endpoint_slice("web", "192.168.60.11", "10.42.1.5")
    for source, is_masqueraded in ((OUTSIDE, False), (HOST, True)):
        found = verdict(flow(*source, "192.168.60.11", 30080), made, endpoints)
        by_address = {each.address: found.is_masqueraded(flow(*source, "x"), each) for each in found.backends}
        assert by_address == {own.address: is_masqueraded, "10.42.1.5": True}
