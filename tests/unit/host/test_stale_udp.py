"""Which UDP flows are stale, for every kind of frontend and every way in which a Service can change."""

import pytest

from kbpf.host.stale_udp import UdpFrontends
from kbpf.model.address import Family, family_of
from kbpf.model.table import ServiceTable
from kbpf.policy.resolve import resolve
from kbpf.tracking.trackers import Trackers
from tests.builders import (
    HERE,
    NODE_NAME,
    changed,
    draining,
    endpoint,
    endpoint_slice,
    gone,
    port,
    service,
    service_name,
    slice_port,
    unusable,
)
from tests.conntrack_entries import TrackedFlow, entry_of, untranslated

NODE_ADDRESS, CLUSTER_IP = "192.168.60.11", "10.96.1.1"
UDP_SLICE = (slice_port(5353, "d", "UDP"),)


def udp_service(name: str = "dns", **fields: object):
    fields.setdefault("cluster_ips", [CLUSTER_IP])
    return service(name, port(53, "d", "UDP", node_port=30053), **fields)  # type: ignore[arg-type]


def udp_slice(*endpoints: object, service_name: str = "dns", **fields: object):
    fields.setdefault("ports", UDP_SLICE)
    return endpoint_slice(service_name, *endpoints, **fields)  # type: ignore[arg-type]


def to(destination: str, backend: str, number: int = 53, backend_port: int = 5353) -> TrackedFlow:
    client = "10.42.1.9" if family_of(destination) is Family.IPV4 else "fd42:1::9"
    return TrackedFlow(client, 40001, destination, number, backend, backend_port)


def black_hole(destination: str, number: int = 53) -> TrackedFlow:
    return untranslated("10.42.1.9", 40001, destination, number)


class Cluster:
    """A node's view of a cluster that changes."""

    def __init__(self, *objects: object) -> None:
        self.trackers = Trackers(NODE_NAME)
        self.table = ServiceTable()
        self.frontends = UdpFrontends()
        self.change(*map(changed, objects))  # type: ignore[arg-type]

    def change(self, *events: object) -> bool:
        for event in events:
            self.trackers.update(event)  # type: ignore[arg-type]
        checkout = self.trackers.checkout()
        affected = set()
        for name, ports in resolve(checkout.dirty, self.trackers, HERE).items():
            affected |= self.table.replace(name, ports)
        self.trackers.commit(checkout)
        return self.frontends.update(affected, self.table, self.trackers)

    def set(self, *objects: object) -> bool:
        return self.change(*map(changed, objects))  # type: ignore[arg-type]

    def stale(self, *flows: TrackedFlow) -> list[TrackedFlow]:
        by_entry = {entry_of(flow): flow for flow in flows}
        return [
            by_entry[entry]
            for family in Family
            for entry in self.frontends.stale(
                family, [entry for entry in by_entry if len(entry.destination) == (4, 16)[family is Family.IPV6]]
            )
        ]

    def is_stale(self, flow: TrackedFlow) -> bool:
        return self.stale(flow) == [flow]


def test_the_flow_of_an_endpoint_that_left_is_stale_and_the_others_are_not():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.101", "10.42.2.101"))
    old, kept = to(CLUSTER_IP, "10.42.1.101"), to(CLUSTER_IP, "10.42.2.101")
    assert cluster.stale(old, kept) == []
    cluster.set(udp_slice("10.42.2.101"))
    assert cluster.stale(old, kept) == [old]


@pytest.mark.parametrize(
    ("destination", "number"),
    [(CLUSTER_IP, 53), ("203.0.113.98", 53), ("203.0.113.30", 53), (NODE_ADDRESS, 30053)],
    ids=["cluster IP", "external IP", "load balancer IP", "node port"],
)
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_every_frontend_is_cleaned(destination: str, number: int, policy: str):
    fields = {
        "type": "LoadBalancer",
        "external_ips": ["203.0.113.98"],
        "ingress": ["203.0.113.30"],
        "external_traffic_policy": policy,
    }
    cluster = Cluster(udp_service(**fields), udp_slice("10.42.1.107"))
    old, new = to(destination, "10.42.1.107", number), to(destination, "10.42.1.108", number)
    cluster.set(udp_slice("10.42.1.108"))
    assert cluster.stale(old, new) == [old]


@pytest.mark.parametrize(("destination", "number"), [(CLUSTER_IP, 53), (NODE_ADDRESS, 30053)])
def test_a_flow_that_began_without_endpoints_is_stale_when_one_comes(destination: str, number: int):
    cluster = Cluster(udp_service())
    cluster.set(udp_slice("10.42.2.102"))
    assert cluster.is_stale(black_hole(destination, number))


def test_a_flow_that_began_while_the_pod_was_starting_is_stale_when_it_is_ready():
    cluster = Cluster(udp_service(), udp_slice(unusable("10.42.2.106", "n2")))
    assert cluster.set(udp_slice(endpoint("10.42.2.106", "n2", ready=True)))
    assert cluster.is_stale(black_hole(CLUSTER_IP))
    assert not cluster.is_stale(to(CLUSTER_IP, "10.42.2.106"))


def test_a_service_scaled_to_zero_keeps_no_flow():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.101"))
    cluster.set(udp_slice())
    assert cluster.is_stale(to(CLUSTER_IP, "10.42.1.101"))


def test_the_flows_of_a_deleted_service_are_stale_until_they_are_forgotten():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.144"))
    flow = to(NODE_ADDRESS, "10.42.1.144", 30053)
    assert cluster.change(gone(udp_service()))
    assert cluster.is_stale(flow)
    cluster.frontends.forget_departed(Family.IPV4)
    assert not cluster.is_stale(flow)
    assert not cluster.frontends.has_any(Family.IPV4)


def test_a_sender_that_went_on_while_its_service_was_gone_is_found_when_it_is_back():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.144"))
    cluster.change(gone(udp_service()))
    cluster.frontends.forget_departed(Family.IPV4)
    cluster.set(udp_service())
    assert cluster.is_stale(black_hole(NODE_ADDRESS, 30053))
    assert not cluster.is_stale(to(NODE_ADDRESS, "10.42.1.144", 30053))


def test_an_address_and_a_port_that_a_service_gave_up_are_cleaned():
    cluster = Cluster(udp_service(external_ips=["203.0.113.98"]), udp_slice("10.42.1.101"))
    cluster.set(service("dns", port(53, "d", "UDP", node_port=30054), cluster_ips=[CLUSTER_IP]))
    external, node_port = to("203.0.113.98", "10.42.1.101"), to(NODE_ADDRESS, "10.42.1.101", 30053)
    assert cluster.stale(external, node_port, to(CLUSTER_IP, "10.42.1.101")) == [external, node_port]


def test_a_frontend_that_another_service_takes_over_belongs_to_its_endpoints():
    shared = "203.0.113.98"
    cluster = Cluster(
        udp_service("alpha", external_ips=[shared]),
        udp_slice("10.42.1.1", service_name="alpha"),
        service("beta", port(53, "d", "UDP"), cluster_ips=["10.96.1.2"], external_ips=[shared]),
        udp_slice("10.42.1.2", service_name="beta"),
    )
    first, second = to(shared, "10.42.1.1"), to(shared, "10.42.1.2")
    assert cluster.stale(first, second) == [second]
    cluster.change(gone(udp_service("alpha")))
    cluster.frontends.forget_departed(Family.IPV4)
    assert cluster.stale(first, second) == [first]


def test_an_endpoint_that_drains_or_is_not_ready_keeps_its_flows_while_it_serves():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.1", "10.42.1.2"))
    cluster.set(udp_slice(draining("10.42.1.1"), endpoint("10.42.1.2", ready=False, serving=True)))
    assert cluster.stale(to(CLUSTER_IP, "10.42.1.1"), to(CLUSTER_IP, "10.42.1.2")) == []


def test_an_endpoint_that_no_longer_serves_loses_its_flows():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.1", endpoint("10.42.1.2", ready=False, serving=False)))
    assert cluster.is_stale(to(CLUSTER_IP, "10.42.1.2"))


def test_remote_endpoints_keep_their_flows_under_local_policies():
    cluster = Cluster(
        udp_service(internal_traffic_policy="Local", external_traffic_policy="Local", type="NodePort"),
        udp_slice("10.42.1.1", endpoint("10.42.2.1", "n2")),
    )
    assert cluster.stale(to(CLUSTER_IP, "10.42.2.1"), to(NODE_ADDRESS, "10.42.2.1", 30053)) == []


def test_an_endpoint_that_changed_its_port_is_another_endpoint():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.1", ports=(slice_port(5354, "d", "UDP"),)))
    assert cluster.is_stale(to(CLUSTER_IP, "10.42.1.1", backend_port=5353))
    assert not cluster.is_stale(to(CLUSTER_IP, "10.42.1.1", backend_port=5354))


def test_ipv6_flows_are_cleaned_like_ipv4_ones():
    cluster = Cluster(
        udp_service(cluster_ips=["fd96::66"]),
        udp_slice(endpoint("fd42:2::72", "n2"), family="IPv6"),
    )
    old, new = to("fd96::66", "fd42:1::71"), to("fd96::66", "fd42:2::72")
    node_port = to("fd00:60::11", "fd42:1::71", 30053)
    assert cluster.stale(old, new, node_port) == [old, node_port]


def test_a_family_that_a_service_does_not_have_is_left_alone():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.101"))
    assert cluster.stale(to("fd00:60::11", "fd42:1::71", 30053)) == []
    assert not cluster.frontends.has_any(Family.IPV6)


def test_flows_to_what_is_no_frontend_are_left_alone():
    cluster = Cluster(udp_service(), udp_slice("10.42.1.101"))
    forwarded_by_another_node = TrackedFlow("192.168.60.12", 40001, "10.42.1.45", 8125, "10.42.1.45", 8125)
    name_server = TrackedFlow("10.42.1.9", 40001, "198.51.100.53", 53, "198.51.100.53", 53)
    assert cluster.stale(forwarded_by_another_node, name_server, to(CLUSTER_IP, "10.42.9.9", 54)) == []


def test_a_tcp_port_beside_the_udp_port_gives_it_no_backends():
    cluster = Cluster(
        service("dns", port(53, "d", "UDP"), port(53, "dt", "TCP"), cluster_ips=[CLUSTER_IP]),
        udp_slice("10.42.1.101", ports=(slice_port(5353, "dt", "TCP"),)),
    )
    assert cluster.is_stale(to(CLUSTER_IP, "10.42.1.101"))


def test_a_headless_service_does_not_keep_others_from_being_cleaned():
    headless = service("hls", port(53, "d", "UDP"), cluster_ips=["None"], ip_families=["IPv4"])
    cluster = Cluster(headless, udp_slice("10.42.1.111", service_name="hls"), udp_service(), udp_slice("10.42.1.112"))
    cluster.set(udp_slice(service_name="hls"), udp_slice())
    assert cluster.is_stale(to(CLUSTER_IP, "10.42.1.112"))


def test_a_change_matters_when_the_service_has_a_udp_port_or_had_one():
    cluster = Cluster()
    tcp = service("web", port(80, "h"), cluster_ips=["10.96.1.9"])
    assert not cluster.set(tcp, endpoint_slice("web", "10.42.1.1"))
    assert not cluster.change(gone(tcp))
    assert cluster.set(udp_service())
    assert cluster.set(udp_slice("10.42.1.101"))
    assert cluster.set(service("dns", port(53, "d", "TCP"), cluster_ips=[CLUSTER_IP]))
    assert not cluster.set(service("dns", port(54, "d", "TCP"), cluster_ips=[CLUSTER_IP]))
    assert cluster.frontends.update([service_name("nobody")], cluster.table, cluster.trackers) is False
