"""Which destinations are frontends: views, node ports, loopback, local addresses, deferral, what is left alone."""

from errno import ECONNREFUSED, ENETUNREACH

import pytest

from kbpf.datapath.ebpf.factory import netns_cookie
from kbpf.datapath.ebpf.shapes import (
    ConfigFlag,
    ConfigValue,
    DeferReason,
    IndexKey,
    Kind,
    LocalAddrKey,
    LocalAddrValue,
    LocalFlag,
    Reason,
    Verdict,
    View,
)
from kbpf.model.address import Address, packed
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import (
    BACKENDS4,
    BACKENDS6,
    NODE4,
    NODE6,
    TCP,
    UDP,
    VIP4,
    Frontend,
    Pod,
    Refused,
    backends,
    be_the_node,
    namespace_cookie,
    node_port,
    put_service,
)

pytestmark = [pytest.mark.root, pytest.mark.kernels("ebpf")]

PORT = 30080


def add_local(node: Node, address: str, flags: LocalFlag) -> None:
    node.maps.local_addr.update({LocalAddrKey(packed(Address(address))): LocalAddrValue(flags)})


def counted(node: Node, reason: Reason) -> int:
    return node.maps.stats.read()[reason]


def refusal(pod: Pod, kind: str, address: str, port: int) -> int | str:
    with pytest.raises(Refused) as refused:
        pod.ask("request", kind, address, port)
    return refused.value.errno


@pytest.fixture
def pod(node: Node) -> Pod:
    """A pod beside node-port services of both families, each with one backend."""
    put_service(node.maps, 7, [node_port(PORT)], backends(BACKENDS4[:1]))
    put_service(node.maps, 8, [node_port(PORT, "::")], backends(BACKENDS6[:1], first_id=11))
    put_service(node.maps, 9, [node_port(PORT)], backends(BACKENDS4[:1], first_id=21), protocols=[UDP])
    pod = node.pod()
    pod.serve((BACKENDS4[0], BACKENDS6[0]))
    return pod


def test_a_node_port_answers_on_the_nodes_address_in_both_families(node: Node, pod: Pod) -> None:
    for address in (NODE4, NODE6):
        add_local(node, address, LocalFlag.NODE_PORT)
    assert pod.ask("request", "tcp", NODE4, PORT) == [f"{BACKENDS4[0]}:8080", NODE4, PORT]
    assert pod.ask("request", "udp", NODE4, PORT) == [f"{BACKENDS4[0]}:8080", NODE4, PORT]
    assert pod.ask("request", "tcp", NODE6, PORT) == [f"{BACKENDS6[0]}:8080", NODE6, PORT]


def test_a_node_port_is_closed_on_local_addresses_without_the_flag(node: Node, pod: Pod) -> None:
    add_local(node, NODE4, LocalFlag.PRIMARY)
    refusal(pod, "tcp", NODE4, PORT)


@pytest.mark.usefixtures("set_retval")
def test_without_backends_a_node_port_is_refused_on_local_addresses_without_the_flag_too(node: Node, pod: Pod) -> None:
    add_local(node, NODE4, LocalFlag.PRIMARY)
    put_service(node.maps, 20, [node_port(30081)], ())
    pod.serve([NODE4], 30081)
    before = counted(node, Reason.REJECTED)
    assert refusal(pod, "tcp", NODE4, 30081) == ECONNREFUSED
    assert counted(node, Reason.REJECTED) == before + 1


@pytest.mark.usefixtures("set_retval")
def test_without_endpoints_an_external_address_is_refused_to_pods_and_left_alone_for_the_node(
    node: Node, pod: Pod
) -> None:
    put_service(node.maps, 20, [Frontend(VIP4, kind=Kind.EXTERNAL_IP)], ())
    assert refusal(pod, "tcp", VIP4, 80) == ECONNREFUSED
    be_the_node(node.maps, pod)
    before = counted(node, Reason.REJECT_PASSED)
    assert refusal(pod, "tcp", VIP4, 80) == ENETUNREACH
    assert counted(node, Reason.REJECT_PASSED) == before + 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "0.0.0.0"])
def test_node_ports_on_loopback_are_the_nodes_own(node: Node, pod: Pod, address: str) -> None:
    add_local(node, "127.0.0.1", LocalFlag.NODE_PORT | LocalFlag.LOOPBACK)
    refusal(pod, "tcp", address, PORT)
    be_the_node(node.maps, pod)
    assert pod.ask("request", "tcp", address, PORT)[0] == f"{BACKENDS4[0]}:8080"


@pytest.mark.parametrize("address", ["::1", "::"])
def test_node_ports_on_ipv6_loopback_are_the_nodes_own(node: Node, pod: Pod, address: str) -> None:
    add_local(node, "::1", LocalFlag.NODE_PORT | LocalFlag.LOOPBACK)
    refusal(pod, "tcp", address, PORT)
    be_the_node(node.maps, pod)
    assert pod.ask("request", "tcp", address, PORT) == [f"{BACKENDS6[0]}:8080", "::1", PORT]


@pytest.mark.usefixtures("told_namespace_cookie")
def test_a_pod_has_another_namespace_cookie_than_this_process(node: Node, pod: Pod) -> None:
    assert netns_cookie() not in (0, namespace_cookie(node.maps, pod))


def test_a_cluster_ip_that_is_an_address_of_this_node_is_left_alone(node: Node, pod: Pod) -> None:
    """A node-local DNS cache listens on the ClusterIP itself."""
    put_service(node.maps, 20, [Frontend(BACKENDS4[1])], backends(BACKENDS4[:1]))
    add_local(node, BACKENDS4[1], LocalFlag.PRIMARY)
    pod.serve([BACKENDS4[1]], 80)
    assert pod.ask("request", "tcp", BACKENDS4[1], 80)[0] == f"{BACKENDS4[1]}:80"


def test_a_load_balancer_ip_that_is_an_address_of_this_node_is_still_balanced(node: Node, pod: Pod) -> None:
    put_service(node.maps, 20, [Frontend(BACKENDS4[1], 80, Kind.LOAD_BALANCER_IP)], backends(BACKENDS4[:1]))
    add_local(node, BACKENDS4[1], LocalFlag.NODE_PORT)
    assert pod.ask("request", "tcp", BACKENDS4[1], 80)[0] == f"{BACKENDS4[0]}:8080"


def test_where_frontends_stand_apart_both_they_and_node_ports_are_found(node: Node, pod: Pod) -> None:
    node.maps.config.update({IndexKey(0): ConfigValue(0, 0, 0, flags=ConfigFlag.STANDS_APART)})
    add_local(node, NODE4, LocalFlag.NODE_PORT)
    put_service(node.maps, 20, [Frontend(VIP4)], backends(BACKENDS4[:1], first_id=31))
    assert pod.ask("request", "tcp", VIP4, 80) == [f"{BACKENDS4[0]}:8080", VIP4, 80]
    assert pod.ask("request", "tcp", NODE4, PORT) == [f"{BACKENDS4[0]}:8080", NODE4, PORT]
    assert refusal(pod, "tcp", NODE4, PORT + 1) == ECONNREFUSED


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("reason", [reason for reason in DeferReason if reason])
def test_a_deferred_frontend_is_left_alone(node: Node, pod: Pod, kind: str, reason: DeferReason) -> None:
    protocol = TCP if kind == "tcp" else UDP
    put_service(node.maps, 20, [Frontend(VIP4, defer=reason)], backends(BACKENDS4[:1]), protocols=[protocol])
    before = counted(node, Reason.DEFERRED)
    assert refusal(pod, kind, VIP4, 80) == ENETUNREACH
    assert counted(node, Reason.DEFERRED) == before + 1


def test_a_local_view_uses_the_local_backends(node: Node, pod: Pod) -> None:
    everywhere = backends(BACKENDS4)
    put_service(node.maps, 20, [Frontend(VIP4, view=View.LOCAL)], everywhere, local=everywhere[:1])
    assert pod.ask("requests", "tcp", VIP4, 80, 20) == {f"{BACKENDS4[0]}:8080": 20}


def test_an_empty_local_view_lets_calls_pass_untranslated(node: Node, pod: Pod) -> None:
    """kube-proxy drops: an UDP send succeeds, a connect waits. An errno from the hook would be neither."""
    frontend = Frontend(VIP4, view=View.LOCAL, verdict=Verdict.DROP)
    put_service(node.maps, 20, [frontend], backends(BACKENDS4))
    before = counted(node, Reason.DROP_PASSED)
    assert refusal(pod, "tcp", VIP4, 80) == ENETUNREACH  # what an address without a route answers here
    assert counted(node, Reason.DROP_PASSED) == before + 1


def test_a_frontend_without_its_service_passes(node: Node, pod: Pod) -> None:
    put_service(node.maps, 20, [Frontend(VIP4)], backends(BACKENDS4))
    node.maps.services.delete(list(node.maps.services.entries()))
    before = counted(node, Reason.NO_SERVICE)
    assert refusal(pod, "tcp", VIP4, 80) == ENETUNREACH
    assert counted(node, Reason.NO_SERVICE) == before + 1


def test_a_service_whose_slots_are_missing_passes(node: Node, pod: Pod) -> None:
    put_service(node.maps, 20, [Frontend(VIP4)], backends(BACKENDS4))
    node.maps.slots.delete(list(node.maps.slots.entries()))
    before = counted(node, Reason.NO_BACKEND)
    assert refusal(pod, "tcp", VIP4, 80) == ENETUNREACH
    assert counted(node, Reason.NO_BACKEND) == before + 1


def test_a_backend_of_the_other_family_is_never_used(node: Node, pod: Pod) -> None:
    put_service(node.maps, 20, [Frontend(VIP4)], backends(BACKENDS6))
    before = counted(node, Reason.OTHER_FAMILY)
    assert refusal(pod, "tcp", VIP4, 80) == ENETUNREACH
    assert counted(node, Reason.OTHER_FAMILY) == before + 1
