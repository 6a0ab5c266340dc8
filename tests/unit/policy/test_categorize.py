"""Topology hints and the two endpoint lists."""

import pytest

from kbpf.model.address import Address, Family
from kbpf.model.endpoint import Endpoint
from kbpf.model.names import Protocol, ServiceName, ServicePortName
from kbpf.model.node import NodeTopology
from kbpf.model.service_port import ServicePort
from kbpf.policy.categorize import Categories, categorize

CLUSTER = ServicePort(
    ServicePortName(ServiceName("shop", "web"), "", Protocol.TCP), Family.IPV4, Address("10.96.0.10"), 80
)
LOCAL = ServicePort(CLUSTER.name, CLUSTER.family, CLUSTER.cluster_ip, 80, internal_policy_local=True)
BOTH = ServicePort(CLUSTER.name, CLUSTER.family, CLUSTER.cluster_ip, 80, node_port=30080, external_policy_local=True)
HERE = NodeTopology("n1", "za")


def hinted(address: str, zones: str = "", nodes: str = "", **fields: bool) -> Endpoint:
    """Hints as words: `zones="za zb"`."""
    return Endpoint(
        Address(address),
        8080,
        zone_hints=frozenset(zones.split()),
        node_hints=frozenset(nodes.split()),
        **fields,
    )


def draining(address: str, **fields: bool) -> Endpoint:
    return Endpoint(Address(address), 8080, ready=False, serving=True, terminating=True, **fields)


def lists(*endpoints: Endpoint, port: ServicePort = BOTH, node: NodeTopology = HERE) -> tuple[str, str]:
    categories = categorize(endpoints, port, node)
    return _names(categories.cluster), _names(categories.local)


def _names(endpoints: tuple[Endpoint, ...]) -> str:
    return " ".join(endpoint.address for endpoint in endpoints)


# -- topology --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoints", "cluster"),
    [
        pytest.param([hinted("a"), hinted("b")], "a b", id="no hints"),
        pytest.param([hinted("a", "za"), hinted("b", "zb")], "a", id="zone"),
        pytest.param([hinted("a", "za zb"), hinted("b", "zb za"), hinted("c", "zb")], "a b", id="several zones"),
        pytest.param([hinted("a", "za"), hinted("b")], "a b", id="one without a zone hint"),
        pytest.param([hinted("a", "zb"), hinted("b", "zc")], "a b", id="no hint for this zone"),
        pytest.param([hinted("a", "za", "n1"), hinted("b", "za", "n2")], "a", id="node before zone"),
        pytest.param([hinted("a", "za", "n1"), hinted("b", "za")], "a b", id="one without a node hint: zone"),
        pytest.param([hinted("a", "za", "n1"), hinted("b", "zb")], "a", id="one without a node hint: zone filters"),
        pytest.param([hinted("a", "za", "n2"), hinted("b", "zb", "n3")], "a", id="no hint for this node: zone"),
        pytest.param([hinted("a", "zb", "n2"), hinted("b", "zc", "n3")], "a b", id="neither node nor zone: all"),
        pytest.param([hinted("a", "", "n1"), hinted("b", "", "n2")], "a", id="node hints alone"),
        pytest.param([hinted("a", "", "n1 n2"), hinted("b", "", "n1")], "a b", id="several nodes"),
    ],
)
def test_hints_are_followed_when_every_ready_endpoint_has_one(endpoints: list[Endpoint], cluster: str):
    assert lists(*endpoints)[0] == cluster


def test_one_ready_endpoint_without_a_hint_disables_that_kind_of_hint():
    assert lists(hinted("a", "za", "n1"), hinted("b", "zb", "n2"))[0] == "a"
    assert lists(hinted("a", "za", "n1"), hinted("b", "zb", "n2"), hinted("c"))[0] == "a b c"


@pytest.mark.parametrize(
    "other",
    [hinted("x", ready=False), hinted("x", ready=False, serving=True, terminating=True)],
    ids=["starting", "draining"],
)
def test_endpoints_that_are_not_ready_have_no_say_in_topology(other: Endpoint):
    assert lists(hinted("a", "za"), hinted("b", "zb"), other)[0] == "a"


def test_a_hint_for_this_zone_on_an_endpoint_that_is_not_ready_does_not_count():
    assert lists(hinted("a", "zb"), hinted("b", "za", ready=False))[0] == "a"


def test_without_a_zone_label_only_node_hints_are_usable():
    nowhere = NodeTopology("n1")
    assert lists(hinted("a", "za"), hinted("b", "zb"), node=nowhere)[0] == "a b"
    assert lists(hinted("a", "za", "n1"), hinted("b", "zb", "n2"), node=nowhere)[0] == "a"


def test_topology_never_filters_the_local_list():
    assert lists(hinted("a", "zb", is_local=True), hinted("b", "za")) == ("b", "a")
    assert lists(hinted("a", "", "n2", is_local=True), hinted("b", "", "n1")) == ("b", "a")


def test_topology_never_filters_the_terminating_fallback():
    endpoints = [
        hinted("a", "za", ready=False, terminating=True),
        hinted("b", "zb", ready=False, terminating=True),
    ]
    assert lists(*endpoints)[0] == "a b"


# -- the terminating fallback ----------------------------------------------------------------------------------------


def test_draining_endpoints_serve_when_none_is_ready():
    assert lists(draining("a"), draining("b"))[0] == "a b"
    assert lists(draining("a"), hinted("b"))[0] == "b"


def test_each_list_falls_back_on_its_own():
    assert lists(draining("a", is_local=True), hinted("b")) == ("b", "a")
    assert lists(draining("a", is_local=True), hinted("b", is_local=True), hinted("c")) == ("b c", "b")


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "is_usable"),
    [
        (True, True, False, True),
        (True, False, False, True),
        (True, True, True, True),
        (True, False, True, True),
        (False, True, True, True),
        (False, True, False, False),
        (False, False, True, False),
        (False, False, False, False),
    ],
)
def test_an_endpoint_serves_when_ready_or_while_draining(
    ready: bool, serving: bool, terminating: bool, is_usable: bool
):
    only = Endpoint(Address("a"), 8080, True, ready, serving, terminating)
    expected = (only,) if is_usable else ()
    assert categorize((only,), BOTH, HERE) == Categories(expected, expected, is_usable)


def test_published_but_not_ready_addresses_count_as_ready_even_while_terminating():
    """publishNotReadyAddresses: the slice says ready, whatever serving and terminating say."""
    endpoints = [
        Endpoint(Address("a"), 8080, True, ready=True, serving=False),
        Endpoint(Address("b"), 8080, False, ready=True, serving=False, terminating=True),
    ]
    assert lists(*endpoints) == ("a b", "a")


# -- which lists there are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "expected"),
    [(CLUSTER, ("a b", "")), (LOCAL, ("", "a")), (BOTH, ("a b", "a"))],
    ids=["cluster only", "local only", "both"],
)
def test_a_list_that_no_policy_uses_is_empty(port: ServicePort, expected: tuple[str, str]):
    assert lists(hinted("a", is_local=True), hinted("b"), port=port) == expected


@pytest.mark.parametrize("port", [CLUSTER, LOCAL, BOTH], ids=["cluster only", "local only", "both"])
@pytest.mark.parametrize(
    ("endpoint", "has_any"),
    [(hinted("b"), True), (draining("b"), True), (hinted("b", ready=False, serving=False), False)],
    ids=["ready", "draining", "unusable"],
)
def test_has_any_looks_at_the_whole_cluster_whatever_the_lists(port: ServicePort, endpoint: Endpoint, has_any: bool):
    assert categorize((endpoint,), port, HERE).has_any is has_any
    assert categorize((), port, HERE) == Categories((), (), False)


def test_the_order_of_the_endpoints_is_kept():
    endpoints = tuple(hinted(address, is_local=True) for address in ("c", "a", "b"))
    categories = categorize(endpoints, BOTH, HERE)
    assert categories.cluster == categories.local == endpoints
