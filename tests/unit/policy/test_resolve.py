"""From service ports and endpoints to the decided table."""

import pytest

from kbpf.model.address import Address, Family
from kbpf.model.names import Protocol, ServiceName
from kbpf.model.node import NodeTopology
from kbpf.model.objects import EndpointSlice, Service
from kbpf.model.table import Backend, Frontend, FrontendKind, Outcome, ResolvedPort, Target, View
from kbpf.policy.resolve import resolve
from tests.builders import (
    draining,
    endpoint,
    endpoint_slice,
    port,
    service,
    service_name,
    slice_port,
    table_of,
    trackers_of,
    unusable,
)

WEB = service_name("web")
LOCAL = {"type": "NodePort", "external_traffic_policy": "Local"}


def resolved(*objects: Service | EndpointSlice) -> ResolvedPort:
    (found,) = table_of(*objects).ports_of(WEB)
    return found


def test_an_unknown_service_resolves_to_nothing():
    assert resolve([WEB], trackers_of(), NodeTopology("n1")) == {WEB: ()}


def test_slices_without_their_service_resolve_to_nothing():
    assert len(table_of(endpoint_slice("web", "10.42.1.5"))) == 0


def test_frontends_come_in_the_order_in_which_rules_are_written():
    found = resolved(
        service(
            "web",
            port(80, node_port=30080),
            type="LoadBalancer",
            external_ips=["203.0.113.9", "203.0.113.8"],
            ingress=["203.0.113.7"],
        )
    )
    assert found.frontends == (
        Frontend(FrontendKind.CLUSTER_IP, Address("10.96.0.10"), 80),
        Frontend(FrontendKind.EXTERNAL_IP, Address("203.0.113.9"), 80),
        Frontend(FrontendKind.EXTERNAL_IP, Address("203.0.113.8"), 80),
        Frontend(FrontendKind.LOAD_BALANCER_IP, Address("203.0.113.7"), 80),
        Frontend(FrontendKind.NODE_PORT, None, 30080),
    )


def test_an_address_that_is_named_twice_is_one_frontend_of_the_first_kind():
    """As the first of kube-proxy's rules for it wins: source ranges then do not hold, for they belong to the second."""
    found = resolved(service(external_ips=["203.0.113.9", "10.96.0.10"], ingress=["203.0.113.9", "203.0.113.7"]))
    assert [(frontend.kind, frontend.address) for frontend in found.frontends] == [
        (FrontendKind.CLUSTER_IP, "10.96.0.10"),
        (FrontendKind.EXTERNAL_IP, "203.0.113.9"),
        (FrontendKind.LOAD_BALANCER_IP, "203.0.113.7"),
    ]


def test_backends_carry_the_numbers_of_the_slice_and_where_they_live():
    found = resolved(
        service(**LOCAL),
        endpoint_slice("web", "10.42.1.5", name="a", ports=[slice_port(8080)]),
        endpoint_slice("web", endpoint("10.42.2.5", "n2"), name="b", ports=[slice_port(9090)]),
    )
    assert found.cluster == (Backend(Address("10.42.1.5"), 8080, True), Backend(Address("10.42.2.5"), 9090, False))


def test_service_and_slices_meet_by_port_name_and_protocol_only():
    made = service("web", port(80, "http"), port(53, "dns", "UDP"))
    table = table_of(made, endpoint_slice("web", "10.42.1.5", ports=[slice_port(80, "dns"), slice_port(53, "http")]))
    http, dns = table.ports_of(WEB)
    assert [backend.port for backend in http.cluster] == [53]
    assert dns.cluster == ()


def test_families_are_resolved_apart():
    made = service(cluster_ips=["10.96.0.10", "fd96::10"])
    v4, v6 = table_of(made, endpoint_slice("web", "fd42::5", family="IPv6")).ports_of(WEB)
    assert (v4.family, v4.internal.outcome) == (Family.IPV4, Outcome.REJECT)
    assert (v6.family, v6.internal.outcome) == (Family.IPV6, Outcome.FORWARD)
    assert v6.cluster == (Backend(Address("fd42::5"), 8080, True),)


HERE, THERE, NOWHERE = endpoint("10.42.1.5", "n1"), endpoint("10.42.2.5", "n2"), unusable("10.42.1.5")


@pytest.mark.parametrize(
    ("endpoints", "cluster", "local"),
    [
        ([HERE, THERE], Outcome.FORWARD, Outcome.FORWARD),
        ([THERE], Outcome.FORWARD, Outcome.DROP),
        ([draining("10.42.2.5", "n2"), NOWHERE], Outcome.FORWARD, Outcome.DROP),
        ([draining("10.42.1.5"), THERE], Outcome.FORWARD, Outcome.FORWARD),
        ([NOWHERE], Outcome.REJECT, Outcome.REJECT),
        ([], Outcome.REJECT, Outcome.REJECT),
    ],
)
@pytest.mark.parametrize("internal", ["Cluster", "Local"])
@pytest.mark.parametrize("external", ["Cluster", "Local"])
def test_each_side_has_its_own_target(
    internal: str, external: str, endpoints: list[object], cluster: Outcome, local: Outcome
):
    found = resolved(
        service(type="NodePort", internal_traffic_policy=internal, external_traffic_policy=external),
        endpoint_slice("web", *endpoints),  # type: ignore[arg-type]
    )
    expected = {"Cluster": Target(View.CLUSTER, cluster), "Local": Target(View.LOCAL, local)}
    assert found.internal == expected[internal]
    # Without a node port nothing is reachable from outside, and then a local list is not even made.
    if internal == "Local" or external == "Cluster":
        assert found.external == expected[external]


@pytest.mark.parametrize(("endpoints", "has_any"), [([THERE], True), ([NOWHERE], False), ([], False)])
def test_has_any_endpoint_looks_beyond_this_node(endpoints: list[object], has_any: bool):
    found = resolved(service("web", port(80, node_port=30080), **LOCAL), endpoint_slice("web", *endpoints))  # type: ignore[arg-type]
    assert found.has_any_endpoint is has_any


def test_the_rest_of_the_service_port_is_carried_along():
    found = resolved(
        service(
            "web",
            port(80, "http", node_port=30080),
            type="LoadBalancer",
            ingress=["203.0.113.7"],
            session_affinity="ClientIP",
            external_traffic_policy="Local",
            health_check_node_port=32100,
            load_balancer_source_ranges=["192.0.2.0/24"],
        )
    )
    assert (found.name.port, found.protocol, found.affinity_timeout_s) == ("http", Protocol.TCP, 10800)
    assert (found.source_ranges, found.health_check_node_port) == (("192.0.2.0/24",), 32100)


def test_only_the_asked_services_are_resolved():
    trackers = trackers_of(service("web"), service("api"))
    assert set(resolve([WEB], trackers, NodeTopology("n1"))) == {ServiceName("shop", "web")}


def test_another_node_decides_otherwise():
    objects = (service(**LOCAL), endpoint_slice("web", endpoint("10.42.1.5", "n1", zones=["za"]),
                                                endpoint("10.42.2.5", "n2", zones=["zb"])))  # fmt: skip
    for topology, cluster in ((NodeTopology("n1", "za"), ["10.42.1.5"]), (NodeTopology("n2", "zb"), ["10.42.2.5"])):
        (found,) = table_of(*objects, topology=topology)
        assert [backend.address for backend in found.cluster] == cluster
        assert [backend.is_local for backend in found.cluster] == [True]


@pytest.mark.parametrize(("protocol", "kept"), [("UDP", [Backend("10.42.2.6", 53, True)]), ("TCP", [])])
def test_flows_of_udp_stay_with_what_serves_beside_the_list(protocol: str, kept: list[Backend]):
    found = resolved(
        service("web", port(53, protocol=protocol)),
        endpoint_slice(
            "web",
            endpoint("10.42.1.5"),
            draining("10.42.2.6"),
            unusable("10.42.2.7"),
            ports=[slice_port(53, protocol=protocol)],
        ),
    )
    assert list(found.kept) == kept
