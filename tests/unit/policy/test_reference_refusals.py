"""Where the reference model refuses and where it lets go, in the corners that kube-proxy's hooks leave."""

import pytest

from kbpf.model.address import Address
from kbpf.model.flow import PASS, REJECT, Origin, Verdict
from kbpf.policy.reference import ReferenceNode, expected_verdict
from tests.builders import flow, port, service, table_of

NODE_ADDRESS, SECOND, EXTERNAL = Address("192.168.60.11"), Address("172.16.0.1"), "203.0.113.5"
NODE = ReferenceNode(local_addresses=frozenset({NODE_ADDRESS, SECOND}), node_port_addresses=frozenset({NODE_ADDRESS}))
IDLE = table_of(
    service("idle", port(80, node_port=30080), external_ips=[EXTERNAL], ingress=["203.0.113.6"], type="LoadBalancer")
)


@pytest.mark.parametrize("address", [EXTERNAL, "203.0.113.6"])
@pytest.mark.parametrize(
    ("origin", "verdict"), [(Origin.HOST, PASS), (Origin.POD, REJECT), (Origin.OUTSIDE, REJECT)], ids=str
)
def test_an_external_address_without_endpoints_is_refused_to_all_but_the_nodes_own_packets(
    address: str, origin: Origin, verdict: Verdict
):
    source = NODE_ADDRESS if origin is Origin.HOST else "10.42.1.9"
    assert expected_verdict(IDLE, flow(origin, source, address), NODE) == verdict


def test_the_node_is_refused_when_the_external_address_is_its_own():
    here = ReferenceNode(local_addresses=frozenset({NODE_ADDRESS, Address(EXTERNAL)}))
    assert expected_verdict(IDLE, flow(Origin.HOST, NODE_ADDRESS, EXTERNAL), here) == REJECT


@pytest.mark.parametrize("address", [NODE_ADDRESS, SECOND])
@pytest.mark.parametrize("origin", [Origin.HOST, Origin.OUTSIDE])
def test_a_node_port_without_endpoints_is_refused_on_every_address_of_the_node(address: str, origin: Origin):
    assert expected_verdict(IDLE, flow(origin, address, address, 30080), NODE) == REJECT


def test_an_address_where_node_ports_are_closed_lets_go_of_everything_else():
    assert expected_verdict(IDLE, flow(Origin.OUTSIDE, "198.51.100.7", SECOND, 30081), NODE) == PASS
    assert expected_verdict(IDLE, flow(Origin.OUTSIDE, "198.51.100.7", "192.168.60.12", 30080), NODE) == PASS
