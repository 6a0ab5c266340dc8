"""Datagrams with an address: one socket stays with one backend, answers carry the Service's address, mixtures hold."""

from errno import ECONNREFUSED

import pytest

from kbpf.datapath.ebpf.layout import CONNECTIONS
from kbpf.datapath.ebpf.shapes import IndexKey, OwnerValue, Translation
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import (
    BACKENDS4,
    BACKENDS6,
    UDP,
    VIP4,
    VIP6,
    Backend,
    Frontend,
    Pod,
    Refused,
    backends,
    put_generation,
    put_service,
)

pytestmark = [pytest.mark.root, pytest.mark.kernels("ebpf")]

SERVICE = 7


@pytest.fixture
def pod(node: Node) -> Pod:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], backends(BACKENDS4), protocols=[UDP])
    put_service(node.maps, 8, [Frontend(VIP6)], backends(BACKENDS6, first_id=11), protocols=[UDP])
    pod = node.pod()
    pod.serve((*BACKENDS4, *BACKENDS6))
    return pod


def exchange(pod: Pod, number: int, address: str, port: int = 80) -> tuple[str, list[object]]:
    """(who answered, whom the socket takes it for)"""
    pod.ask("send", number, address, port)
    words, *sender = pod.ask("receive", number)
    return words.split()[0], sender


@pytest.mark.parametrize(
    ("family", "vip", "addresses"),
    [
        ("AF_INET", VIP4, BACKENDS4),
        ("AF_INET6", VIP6, BACKENDS6),
        ("AF_INET6", f"::ffff:{VIP4}", BACKENDS4),
    ],
)
def test_a_socket_stays_with_one_backend_and_hears_the_service(
    pod: Pod, family: str, vip: str, addresses: tuple[str, ...]
) -> None:
    number = pod.ask("open_socket", "udp", family)
    answers = [exchange(pod, number, vip) for _ in range(20)]
    assert len({who for who, _ in answers}) == 1
    assert answers[0][0] in [f"{address}:8080" for address in addresses]
    assert all(sender == [vip, 80] for _, sender in answers)


def test_sockets_spread_over_the_backends(pod: Pod) -> None:
    shares = pod.ask("requests", "udp", VIP4, 80, 150)
    assert sorted(shares) == [f"{address}:8080" for address in BACKENDS4]


def test_a_socket_moves_on_when_its_backend_leaves(node: Node, pod: Pod) -> None:
    number = pod.ask("open_socket", "udp", "AF_INET")
    first, _ = exchange(pod, number, VIP4)
    staying = tuple(each for each in backends(BACKENDS4) if f"{each.address}:8080" != first)
    put_generation(node.maps, SERVICE, staying, protocol=UDP, generation=2)
    second, sender = exchange(pod, number, VIP4)
    assert second in [f"{each.address}:8080" for each in staying]
    assert sender == [VIP4, 80]


def test_a_socket_stays_when_other_backends_come_and_go(node: Node, pod: Pod) -> None:
    number = pod.ask("open_socket", "udp", "AF_INET")
    first, _ = exchange(pod, number, VIP4)
    for generation in range(2, 12):
        kept = tuple(each for each in backends(BACKENDS4) if f"{each.address}:8080" == first or generation % 2)
        put_generation(node.maps, SERVICE, kept, protocol=UDP, generation=generation)
        assert exchange(pod, number, VIP4)[0] == first


def test_a_record_does_not_outlive_the_service_it_was_made_for(node: Node, pod: Pod) -> None:
    number = pod.ask("open_socket", "udp", "AF_INET")
    first, _ = exchange(pod, number, VIP4)
    other = next(each for each in backends(BACKENDS4) if f"{each.address}:8080" != first)
    put_service(node.maps, 9, [Frontend(VIP4)], (other,), protocols=[UDP])
    assert exchange(pod, number, VIP4)[0] == f"{other.address}:8080"


def test_more_services_than_records_all_get_answers_under_their_own_address(node: Node, pod: Pod) -> None:
    ports = range(1000, 1012)
    for port in ports:
        only = Backend(port, BACKENDS4[0], port)
        put_service(node.maps, port, [Frontend(VIP4, port)], (only,), protocols=[UDP])
        pod.ask("serve", "udp", BACKENDS4[0], port)
    number = pod.ask("open_socket", "udp", "AF_INET")
    for port in [*ports, *ports]:
        assert exchange(pod, number, VIP4, port) == (f"{BACKENDS4[0]}:{port}", [VIP4, port])


def test_a_datagram_straight_to_a_backend_is_answered_by_the_backend(node: Node, pod: Pod) -> None:
    put_generation(node.maps, SERVICE, backends(BACKENDS4[:1]), protocol=UDP, generation=2)
    number = pod.ask("open_socket", "udp", "AF_INET")
    assert exchange(pod, number, VIP4)[1] == [VIP4, 80]
    assert exchange(pod, number, BACKENDS4[0], 8080)[1] == [BACKENDS4[0], 8080]
    assert exchange(pod, number, VIP4)[1] == [VIP4, 80]


def test_a_connected_socket_that_also_addresses_the_service_stays_with_its_peer(pod: Pod) -> None:
    for _ in range(10):
        number = pod.ask("open_socket", "udp", "AF_INET")
        pod.ask("connect", number, VIP4, 80)
        pod.ask("send", number)
        peer = pod.ask("receive", number)[0].split()[0]
        assert exchange(pod, number, VIP4) == (peer, [VIP4, 80])
        pod.ask("close", number)


def test_a_connected_socket_keeps_its_peer_when_it_addresses_another_service(node: Node, pod: Pod) -> None:
    other = Backend(50, BACKENDS4[2], 9090)
    put_service(node.maps, 50, [Frontend(VIP4, 81)], (other,), protocols=[UDP])
    number = pod.ask("open_socket", "udp", "AF_INET")
    pod.ask("connect", number, VIP4, 80)
    pod.ask("send", number, VIP4, 81)  # answered to nobody: the kernel lets a connected socket hear its peer only
    assert pod.ask("peer", number) == [VIP4, 80]
    pod.ask("send", number)
    assert pod.ask("receive", number)[1:] == [VIP4, 80]


def test_a_disconnected_socket_that_addresses_the_backend_hears_the_backend(node: Node, pod: Pod) -> None:
    put_generation(node.maps, SERVICE, backends(BACKENDS4[:1]), protocol=UDP, generation=2)
    number = pod.ask("open_socket", "udp", "AF_INET")
    pod.ask("connect", number, VIP4, 80)
    pod.ask("disconnect", number)
    assert exchange(pod, number, BACKENDS4[0], 8080)[1] == [BACKENDS4[0], 8080]


@pytest.mark.usefixtures("set_retval")
def test_a_socket_whose_service_lost_its_last_backend_is_refused(node: Node, pod: Pod) -> None:
    number = pod.ask("open_socket", "udp", "AF_INET")
    exchange(pod, number, VIP4)
    put_generation(node.maps, SERVICE, (), protocol=UDP, generation=2)
    with pytest.raises(Refused) as refused:
        pod.ask("send", number, VIP4, 80)
    assert refused.value.errno == ECONNREFUSED
    put_generation(node.maps, SERVICE, backends(BACKENDS4), protocol=UDP, generation=3)
    assert exchange(pod, number, VIP4)[1] == [VIP4, 80]


def test_the_first_frontends_record_stands_in_the_sockets_slot_which_is_free_again_when_it_closes(
    node: Node, pod: Pod
) -> None:
    number = pod.ask("open_socket", "udp", "AF_INET")
    slot = IndexKey(pod.ask("cookie", number) % CONNECTIONS.max_entries)
    exchange(pod, number, VIP4)
    taken = node.maps.owners.lookup(slot)
    assert taken
    assert taken.socket_cookie == pod.ask("cookie", number)
    pod.ask("close", number)
    free = node.maps.owners.lookup(slot)
    assert free
    assert free.socket_cookie == 0


def test_a_socket_whose_slot_is_anothers_remembers_by_itself(node: Node, pod: Pod) -> None:
    number = pod.ask("open_socket", "udp", "AF_INET")
    slot = IndexKey(pod.ask("cookie", number) % CONNECTIONS.max_entries)
    other = OwnerValue(bytes(4), pod.ask("cookie", number) + CONNECTIONS.max_entries)
    record = Translation(bytes(16), bytes(16), 0, 0, 0, 0, 0)
    node.maps.connections.update({slot: record})
    node.maps.owners.update({slot: other})
    try:
        answers = [exchange(pod, number, VIP4) for _ in range(10)]
        assert len({who for who, _ in answers}) == 1
        assert all(sender == [VIP4, 80] for _, sender in answers)
        pod.ask("close", number)
        assert (node.maps.owners.lookup(slot), node.maps.connections.lookup(slot)) == (other, record)
    finally:
        node.maps.owners.update({slot: OwnerValue(bytes(4), 0)})


def test_a_slot_that_another_socket_left_tells_nothing_of_it(node: Node, pod: Pod) -> None:
    """The record of a closed socket still stands there when the next one takes the slot."""
    number = pod.ask("open_socket", "udp", "AF_INET")
    slot = IndexKey(pod.ask("cookie", number) % CONNECTIONS.max_entries)
    exchange(pod, number, VIP4)
    record = node.maps.connections.lookup(slot)
    pod.ask("close", number)
    assert record
    successor = pod.ask("open_socket", "udp", "AF_INET")
    own = IndexKey(pod.ask("cookie", successor) % CONNECTIONS.max_entries)
    node.maps.connections.update({own: record})
    put_service(node.maps, 9, [Frontend(VIP4, 81)], (Backend(90, BACKENDS4[2]),), protocols=[UDP])
    assert exchange(pod, successor, VIP4, 81) == (f"{BACKENDS4[2]}:8080", [VIP4, 81])
    assert exchange(pod, successor, BACKENDS4[0], 8080)[1] == [BACKENDS4[0], 8080]
