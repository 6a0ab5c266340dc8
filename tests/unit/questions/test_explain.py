"""One flow told twice: as the source wants it, and as rows and rules have it."""

import pytest

from kbpf.datapath.ebpf.ids import backend_address, backend_row
from kbpf.errors import UsageError
from kbpf.model.address import Address, packed
from kbpf.model.flow import Flow, Origin
from kbpf.model.names import Protocol
from kbpf.questions.explain import Explanation, document, kernel_side, verdict_words, wanted_side
from kbpf.questions.flow import flow_of, parse_destination
from tests.asked_node import NODE, AskedNode
from tests.builders import endpoint, endpoint_slice, flow, port, service, slice_port, table_of

POD = "10.42.1.9"
TABLE = table_of(
    service("web", port(80, node_port=30080), type="NodePort"),
    endpoint_slice("web", "10.42.1.5", endpoint("10.42.2.5", "n2")),
    service("media", port(99, protocol="SCTP"), cluster_ips=["10.96.0.11"]),
    endpoint_slice("media", "10.42.1.5", ports=[slice_port(99, protocol="SCTP")]),
    service("empty", cluster_ips=["10.96.0.12"]),
)
BOTH = pytest.mark.parametrize("datapath", ["ebpf", "iptables"])


def explained(node: AskedNode, asked: Flow) -> Explanation:
    return Explanation(asked, wanted_side(TABLE, asked, NODE), kernel_side(node.kernel, asked, NODE))


@BOTH
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (flow(Origin.POD, POD, "10.96.0.10"), "to one of 10.42.1.5:8080, 10.42.2.5:8080"),
        (flow(Origin.HOST, "192.168.60.11", "10.96.0.10"), "to one of 10.42.1.5:8080, 10.42.2.5:8080"),
        (flow(Origin.POD, POD, "10.96.0.12"), "refused: no endpoints"),
        (flow(Origin.POD, POD, "10.96.0.99"), "left alone: no Service"),
        (flow(Origin.POD, POD, "10.96.0.11", 99, Protocol.SCTP), "to one of 10.42.1.5:99"),
    ],
)
def test_the_two_agree(datapath: str, asked: Flow, words: str):
    found = explained(AskedNode(datapath).sync(TABLE), asked)
    assert found.difference == ""
    assert verdict_words(found.kernel).startswith(words)


def test_packets_from_elsewhere_are_masqueraded_and_both_sides_say_so():
    asked = flow(Origin.OUTSIDE, "198.51.100.7", "192.168.60.11", 30080)
    for datapath in ("ebpf", "iptables"):
        found = explained(AskedNode(datapath).sync(TABLE), asked)
        assert (found.difference, document(found)["kernel"]["masquerade"]) == ("", True)


def test_the_steps_are_the_rows_or_the_rules_that_the_flow_meets():
    asked = flow(Origin.POD, POD, "10.96.0.10")
    rows = explained(AskedNode().sync(TABLE), asked).kernel.steps
    assert rows[0].startswith("frontends address=10.96.0.10 port=80 protocol=TCP -> kind=CLUSTER_IP")
    assert rows[1].endswith(", which is shop/web")
    assert rows[-1] == "socket hook: chosen"
    rules = explained(AskedNode("iptables").sync(TABLE), asked).kernel.steps
    assert rules[1].startswith("rule: nat -A KUBE-SERVICES -d 10.96.0.10/32")


def test_a_deferred_frontend_is_followed_into_the_rules():
    asked = flow(Origin.POD, POD, "10.96.0.11", 99, Protocol.SCTP)
    steps = explained(AskedNode().sync(TABLE), asked).kernel.steps
    assert any("KUBE-SVC-" in step for step in steps)
    assert any(step.startswith("socket hook: other-protocol") for step in steps)


def test_a_kernel_that_holds_something_else_differs():
    node = AskedNode().sync(TABLE)
    maps = node.programs.maps
    assert maps is not None
    key, row = next((key, row) for key, row in maps.slots.entries().items() if backend_row(row.backend, 0).port == 8080)
    maps.slots.update({key: row._replace(backend=backend_address(packed(Address("10.42.1.5")), 9, 6))})
    found = explained(node, flow(Origin.POD, POD, "10.96.0.10"))
    assert "only wanted: 10.42." in found.difference
    assert "only in the kernel: 10.42." in found.difference


def test_a_node_without_anything_differs_where_a_service_is_wanted():
    found = explained(AskedNode("iptables"), flow(Origin.POD, POD, "10.96.0.10"))
    assert found.difference == "wanted is forward, the kernel's answer is pass"


# -- words of the command line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10.96.0.10:80", ("10.96.0.10", 80, Protocol.TCP)),
        ("10.96.0.10:53/udp", ("10.96.0.10", 53, Protocol.UDP)),
        ("[fd96::A]:80/sctp", ("fd96::a", 80, Protocol.SCTP)),
    ],
)
def test_a_destination(text: str, wanted: tuple[str, int, Protocol]):
    assert parse_destination(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "10.96.0.10", "10.96.0.10:0", "10.96.0.10:99999", "fd96::1:80", "web:80", "1.2.3.4:80/icmp"]
)
def test_words_that_are_no_destination_are_refused(text: str):
    with pytest.raises(UsageError, match=r"DESTINATION|protocols are|no IP address"):
        parse_destination(text)


@pytest.mark.parametrize(
    ("client", "origin", "source"),
    [
        ("10.42.1.5", Origin.POD, "10.42.1.5"),
        ("10.42.2.5", Origin.OUTSIDE, "10.42.2.5"),
        ("10.42.1.200", Origin.POD, "10.42.1.200"),
        ("198.51.100.7", Origin.OUTSIDE, "198.51.100.7"),
        ("192.168.60.11", Origin.HOST, "192.168.60.11"),
        ("host", Origin.HOST, "192.168.60.11"),
    ],
)
def test_where_a_client_is_follows_from_its_address(client: str, origin: Origin, source: str):
    found = flow_of(client, "10.96.0.10:80", NODE, TABLE, None)
    assert (found.origin, found.source) == (origin, source)
    assert flow_of(client, "10.96.0.10:80", NODE, TABLE, Origin.OUTSIDE).origin is Origin.OUTSIDE


def test_the_node_calls_itself_from_the_address_that_it_calls():
    assert flow_of("host", "127.0.0.1:30080", NODE, TABLE, None).source == "127.0.0.1"


@pytest.mark.parametrize("client", ["web", "fd42::9", "host"])
def test_clients_that_cannot_be_are_refused(client: str):
    destination = "[fd96::1]:80" if client == "host" else "10.96.0.10:80"
    with pytest.raises(UsageError):
        flow_of(client, destination, NODE, TABLE, None)
