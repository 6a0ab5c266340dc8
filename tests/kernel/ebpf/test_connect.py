"""connect() through the real programs: TCP and connected UDP, both families, both spellings of IPv4."""

from errno import ECONNREFUSED, ENETUNREACH

import pytest

from kbpf.datapath.ebpf.layout import CONNECTIONS
from kbpf.datapath.ebpf.probe import has_set_retval
from kbpf.datapath.ebpf.shapes import IndexKey, OwnerValue, Reason, Translation
from kbpf.model.address import Address, packed
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import (
    BACKENDS4,
    BACKENDS6,
    TCP,
    UDP,
    VIP4,
    VIP6,
    Frontend,
    Pod,
    Refused,
    backends,
    namespace_cookie,
    put_service,
)

pytestmark = [pytest.mark.root, pytest.mark.kernels("ebpf")]

MAPPED_VIP = f"::ffff:{VIP4}"
CASES = [
    pytest.param("AF_INET", VIP4, BACKENDS4, id="IPv4"),
    pytest.param("AF_INET6", VIP6, BACKENDS6, id="IPv6"),
    pytest.param("AF_INET6", MAPPED_VIP, BACKENDS4, id="mapped"),
]


@pytest.mark.parametrize(("family", "vip", "addresses"), CASES)
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_connected_socket_reaches_a_backend_and_sees_the_service(
    node: Node, kind: str, family: str, vip: str, addresses: tuple[str, ...]
) -> None:
    protocol = TCP if kind == "tcp" else UDP
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4), protocols=[protocol])
    put_service(node.maps, 8, [Frontend(VIP6)], backends(BACKENDS6, first_id=11), protocols=[protocol])
    pod = node.pod()
    pod.serve(addresses)
    number = pod.ask("open_socket", kind, family)
    pod.ask("connect", number, vip, 80)
    assert pod.ask("peer", number) == [vip, 80]
    if kind == "udp":
        pod.ask("send", number)
    answer, *sender = pod.ask("receive", number)
    assert answer.split()[0] in [f"{address}:8080" for address in addresses]
    assert sender == ([None, None] if kind == "tcp" else [vip, 80])


def test_every_backend_gets_its_share(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    pod = node.pod()
    pod.serve(BACKENDS4)
    shares = pod.ask("requests", "tcp", VIP4, 80, 600)
    assert sorted(shares) == [f"{address}:8080" for address in BACKENDS4]
    # 3 degrees of freedom less one: a fair balance exceeds 23 once in a hundred thousand runs.
    assert sum((share - 200) ** 2 / 200 for share in shares.values()) < 23


def test_another_port_or_protocol_of_the_address_is_left_alone(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    pod = node.pod()
    pod.serve(BACKENDS4)
    for kind, port in (("tcp", 81), ("udp", 80)):
        with pytest.raises(Refused) as refused:
            pod.ask("request", kind, VIP4, port)
        assert refused.value.errno == ENETUNREACH


@pytest.mark.usefixtures("set_retval")
def test_a_frontend_without_backends_refuses_tcp_and_udp(node: Node) -> None:
    for protocol in (TCP, UDP):
        put_service(node.maps, protocol, [Frontend(VIP4), Frontend(VIP6)], (), protocols=[protocol])
    pod = node.pod()
    for family, vip in (("AF_INET", VIP4), ("AF_INET6", VIP6), ("AF_INET6", MAPPED_VIP)):
        for kind, command in (("tcp", "connect"), ("udp", "connect"), ("udp", "send")):
            number = pod.ask("open_socket", kind, family)
            with pytest.raises(Refused) as refused:
                pod.ask(command, number, vip, 80)
            assert refused.value.errno == ECONNREFUSED


def test_a_refused_socket_may_connect_again_when_there_are_backends(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], ())
    pod = node.pod()
    pod.serve(BACKENDS4)
    number = pod.ask("open_socket", "tcp", "AF_INET")
    with pytest.raises(Refused):
        pod.ask("connect", number, VIP4, 80)
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4), generation=2)
    pod.ask("connect", number, VIP4, 80)
    assert pod.ask("peer", number) == [VIP4, 80]


def test_a_socket_that_connects_elsewhere_afterwards_is_not_mistranslated(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]), protocols=[UDP])
    pod = node.pod()
    pod.serve(BACKENDS4)
    number = pod.ask("open_socket", "udp", "AF_INET")
    pod.ask("connect", number, VIP4, 80)
    assert len(node.maps.udp_conn.entries()) == 1
    for address in (BACKENDS4[1], BACKENDS4[0]):
        pod.ask("connect", number, address, 8080)
        assert pod.ask("peer", number) == [address, 8080]
        pod.ask("send", number)
        assert pod.ask("receive", number)[1:] == [address, 8080]
    assert not node.maps.udp_conn.entries()


def test_a_direct_connection_to_a_backend_shows_the_backend(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]))
    pod = node.pod()
    pod.serve(BACKENDS4)
    assert pod.ask("request", "tcp", BACKENDS4[0], 8080) == [f"{BACKENDS4[0]}:8080", BACKENDS4[0], 8080]


def slot_of(pod: Pod, number: int) -> IndexKey:
    """Where the record of a pod's TCP connection belongs."""
    return IndexKey(pod.ask("cookie", number) % CONNECTIONS.max_entries)


def test_a_connection_takes_the_slot_of_its_socket_and_gives_it_back(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    pod = node.pod()
    pod.serve(BACKENDS4)
    number = pod.ask("open_socket", "tcp", "AF_INET")
    slot = slot_of(pod, number)
    pod.ask("connect", number, VIP4, 80)
    taken = node.maps.owners.lookup(slot)
    assert taken
    assert taken.socket_cookie == pod.ask("cookie", number)
    pod.ask("close", number)
    free = node.maps.owners.lookup(slot)
    assert free
    assert free.socket_cookie == 0


def test_a_connection_whose_slot_is_taken_sees_the_service_all_the_same(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    pod = node.pod()
    pod.serve(BACKENDS4)
    number = pod.ask("open_socket", "tcp", "AF_INET")
    slot = slot_of(pod, number)
    other = OwnerValue(bytes(4), pod.ask("cookie", number) + CONNECTIONS.max_entries)
    record = Translation(bytes(16), bytes(16), 0, 0, 0, 0, 0)
    node.maps.connections.update({slot: record})
    node.maps.owners.update({slot: other})
    try:
        pod.ask("connect", number, VIP4, 80)
        assert pod.ask("peer", number) == [VIP4, 80]
        pod.ask("close", number)
        assert (node.maps.owners.lookup(slot), node.maps.connections.lookup(slot)) == (other, record)
    finally:
        node.maps.owners.update({slot: OwnerValue(bytes(4), 0)})


def test_a_socket_that_connects_to_the_backend_itself_afterwards_shows_the_backend(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]))
    pod = node.pod()
    pod.serve(BACKENDS4)
    number = pod.ask("open_socket", "tcp", "AF_INET")
    pod.ask("connect", number, VIP4, 80)
    pod.ask("disconnect", number)
    pod.ask("connect", number, BACKENDS4[0], 8080)
    assert pod.ask("peer", number) == [BACKENDS4[0], 8080]


def test_connected_udp_sockets_are_listed_with_their_backend_until_they_close(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]), protocols=[UDP])
    pod = node.pod()
    number = pod.ask("open_socket", "udp", "AF_INET")
    pod.ask("connect", number, VIP4, 80)
    key = (namespace_cookie(node.maps, pod), pod.ask("cookie", number))
    row = (packed(Address(VIP4)), packed(Address(BACKENDS4[0])), 80, 8080)
    assert node.maps.udp_conn.entries() == {key: row}
    pod.ask("close", number)
    assert not node.maps.udp_conn.entries()


def test_every_exit_counts_its_reason(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    put_service(node.maps, 8, [Frontend(VIP4, 81)], ())
    pod = node.pod()
    pod.serve(BACKENDS4)
    before = node.maps.stats.read()
    pod.ask("requests", "tcp", VIP4, 80, 5)
    pod.ask("requests", "tcp", VIP4, 81, 3)
    pod.ask("requests", "tcp", VIP4, 82, 2)
    after = node.maps.stats.read()
    grown = {reason: after[reason] - before[reason] for reason in Reason if after[reason] != before[reason]}
    # The kernel asks the getpeername hook for a server's accept(), too: those five are not ours.
    assert grown == {
        Reason.CHOSEN: 5,
        Reason.REJECTED if has_set_retval() else Reason.REJECT_PASSED: 3,
        Reason.NOT_A_FRONTEND: 2,
        Reason.REVERSED: 5,
        Reason.NOT_REVERSED: 5,
    }
