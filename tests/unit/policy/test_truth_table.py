"""The truth table of the traffic policies, row by row and column by column, through resolve and the reference model.

R: ready, T: draining (serving and terminating), X: unusable; L lives on this node, r elsewhere.
"""

import pytest

from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Origin, Verdict
from kbpf.model.objects import EndpointSlice, SliceEndpoint
from kbpf.model.table import Backend, ServiceTable
from kbpf.policy.reference import ReferenceNode, expected_verdict
from tests.builders import draining, endpoint, endpoint_slice, flow, port, service, table_of, unusable

HERE, THERE = "10.42.1.5", "10.42.2.5"
MAKERS = {"R": endpoint, "T": draining, "X": unusable}
NODE_IP, CLUSTER_IP, NODE_PORT = "192.168.60.11", "10.96.0.10", 30080
LOAD_BALANCER_IP, EXTERNAL_IP = "203.0.113.5", "203.0.113.6"
NODE = ReferenceNode(
    local_addresses=frozenset(map(Address, (NODE_IP, "127.0.0.1"))),
    node_port_addresses=frozenset({Address(NODE_IP)}),
    detectors={Family.IPV4: LocalDetector(cidr="10.42.0.0/16")},
)

TABLE = {
    # endpoints    iTP Cluster, iTP Local, eTP Cluster, eTP Local from outside, eTP Local from a pod or the host
    "L:R r:R": ("L r", "L", "L r", "L", "L r"),
    "L:T r:R": ("r", "L", "r", "L", "r"),
    "L:X r:R": ("r", "drop", "r", "drop", "r"),
    "L:T r:T": ("L r", "L", "L r", "L", "L r"),
    "L:X r:T": ("r", "drop", "r", "drop", "r"),
    "L:R r:T": ("L", "L", "L", "L", "L"),
    "L:X r:X": ("reject",) * 5,
    "L:R": ("L",) * 5,
    "L:T": ("L",) * 5,
    "r:R": ("r", "drop", "r", "drop", "r"),
    "r:T": ("r", "drop", "r", "drop", "r"),
    "": ("reject",) * 5,
}
ROWS = pytest.mark.parametrize("row", TABLE)


def slice_of(row: str) -> EndpointSlice:
    endpoints: list[SliceEndpoint] = []
    for word in row.split():
        place, state = word.split(":")
        address, node = (HERE, "n1") if place == "L" else (THERE, "n2")
        endpoints.append(MAKERS[state](address, node))
    return endpoint_slice("web", *endpoints)


def table(row: str, internal: str, external: str) -> ServiceTable:
    made = service(
        "web",
        port(80, node_port=NODE_PORT),
        type="LoadBalancer",
        ingress=[LOAD_BALANCER_IP],
        external_ips=[EXTERNAL_IP],
        internal_traffic_policy=internal,
        external_traffic_policy=external,
        health_check_node_port=32100,
    )
    return table_of(made, slice_of(row))


def words(verdict: Verdict) -> str:
    if verdict.action is not Action.FORWARD:
        assert verdict in (DROP, REJECT, PASS)
        return verdict.action.value
    names = {Backend(Address(HERE), 8080, True): "L", Backend(Address(THERE), 8080, False): "r"}
    return " ".join(sorted(names[backend] for backend in verdict.backends))


POD, HOST, OUTSIDE = (Origin.POD, "10.42.1.9"), (Origin.HOST, NODE_IP), (Origin.OUTSIDE, "198.51.100.7")
EVERYBODY = (POD, HOST, OUTSIDE)


def external_flows(*sources: tuple[Origin, str]) -> list[Flow]:
    places = ((NODE_IP, NODE_PORT), (LOAD_BALANCER_IP, 80), (EXTERNAL_IP, 80))
    return [flow(*source, *place) for source in sources for place in places]


def expected_outside(cell: str, each: Flow) -> str:
    """kube-proxy has no rule that rejects what the node itself sends out to an address without endpoints."""
    is_on_its_way_out = each.origin is Origin.HOST and each.destination != NODE_IP
    return "pass" if cell == "reject" and is_on_its_way_out else cell


@ROWS
@pytest.mark.parametrize("external", ["Cluster", "Local"])
def test_internal_policy_cluster(row: str, external: str):
    for source in EVERYBODY:
        verdict = expected_verdict(table(row, "Cluster", external), flow(*source, CLUSTER_IP), NODE)
        assert words(verdict) == TABLE[row][0]


@ROWS
@pytest.mark.parametrize("external", ["Cluster", "Local"])
def test_internal_policy_local(row: str, external: str):
    for source in EVERYBODY:
        verdict = expected_verdict(table(row, "Local", external), flow(*source, CLUSTER_IP), NODE)
        assert words(verdict) == TABLE[row][1]


@ROWS
@pytest.mark.parametrize("internal", ["Cluster", "Local"])
def test_external_policy_cluster(row: str, internal: str):
    for each in external_flows(*EVERYBODY):
        assert words(expected_verdict(table(row, internal, "Cluster"), each, NODE)) == expected_outside(
            TABLE[row][2], each
        )


@ROWS
@pytest.mark.parametrize("internal", ["Cluster", "Local"])
def test_external_policy_local_from_outside(row: str, internal: str):
    for each in external_flows(OUTSIDE):
        assert words(expected_verdict(table(row, internal, "Local"), each, NODE)) == expected_outside(
            TABLE[row][3], each
        )


@ROWS
@pytest.mark.parametrize("internal", ["Cluster", "Local"])
def test_external_policy_local_from_a_pod_or_the_host(row: str, internal: str):
    for each in external_flows(POD, HOST):
        assert words(expected_verdict(table(row, internal, "Local"), each, NODE)) == expected_outside(
            TABLE[row][4], each
        )
