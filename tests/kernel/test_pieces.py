"""Packets that are parts of something, or stand for many: fragments in any order, GSO, segments of one datagram."""

import hashlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import Reason
from tests.builders import endpoint, endpoint_slice, port, service, slice_port
from tests.kernel.ebpf.packets import IP, UDP, Ends, IPv6, IPv6ExtHdrFragment, Packet, Raw, frame, ip
from tests.kernel.world import World, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

HERE, AWAY = "10.42.1.10", "10.42.2.10"
HERE6, AWAY6 = "fd42:1::10", "fd42:2::10"
NODE = {"v4": "192.168.60.11", "v6": "fd60::11"}
CLIENT = {"v4": "198.51.100.7", "v6": "2001:db8:51::7"}
PATIENCE_S = 10.0
UDP_SEGMENT = 103

families = pytest.mark.parametrize("family", ["v4", "v6"])


@pytest.fixture(scope="module")
def world(shared_world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    ports = (port(80, "http", node_port=30080), port(53, "dns", "UDP", node_port=30053))
    slice_ports = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]
    for addresses in ((HERE, HERE6), (AWAY, AWAY6)):
        shared_world.pod(*addresses)
        shared_world.serve(*(f"[{address}]:{number}" for address in addresses for number in ("8080", "5353/udp")))
    manifests = write_manifests(
        tmp_path_factory.mktemp("pieces") / "manifests",
        service("web", *ports, type="NodePort"),
        endpoint_slice("web", HERE, endpoint(AWAY, "n2"), ports=slice_ports),
        service("web6", *ports, type="NodePort", cluster_ips=["fd96::10"]),
        endpoint_slice("web6", HERE6, endpoint(AWAY6, "n2"), ports=slice_ports, family="IPv6"),
    )
    shared_world.proxy(manifests, "--datapath=ebpf", "--fallback=none")
    return shared_world


@contextmanager
def bound(world: World, family: str, kind: int, number: int = 0) -> Iterator[socket.socket]:
    """A client's socket outside."""
    with world.network.namespace.entered():
        made = socket.socket(socket.AF_INET6 if family == "v6" else socket.AF_INET, kind)
    with made:
        made.settimeout(PATIENCE_S)
        made.bind((CLIENT[family], number))
        yield made


def fragments(between: Ends, payload: bytes, number: int, size: int = 512) -> list[Packet]:
    head = ip(between.source, between.destination)
    udp = bytes(head / UDP(sport=between.source_port, dport=between.destination_port) / Raw(payload))[len(head) :]
    found = []
    for start in range(0, len(udp), size):
        piece, more = udp[start : start + size], start + size < len(udp)
        if IP in head:
            fields = {"id": number, "proto": 17, "frag": start // 8, "flags": "MF" if more else 0}
            found.append(ip(between.source, between.destination, **fields) / Raw(piece))
        else:
            extension = IPv6ExtHdrFragment(id=number, offset=start // 8, m=int(more), nh=17)
            found.append(IPv6(src=between.source, dst=between.destination) / extension / Raw(piece))
    return found


def send(world: World, packets: list[Packet]) -> None:
    """On the wire to the node, as they are."""
    with world.node.namespace.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as asked:
        asked.bind(("eth0", 0))
        hardware: bytes = asked.getsockname()[4]
    with world.network.namespace.entered():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with wire:
        wire.bind(("n1", 0))
        for packet in packets:
            wire.send(hardware + bytes(frame() / packet)[6:])


@families
def test_a_datagram_in_fragments_is_answered_in_fragments(world: World, family: str) -> None:
    payload = b"x" * 1900 + b"\n"
    with bound(world, family, socket.SOCK_DGRAM) as client:
        for number in range(10):
            between = Ends(CLIENT[family], client.getsockname()[1], NODE[family], 30053)
            send(world, fragments(between, payload, 1000 + number))
            answer, (address, from_port, *_) = client.recvfrom(4096)
            assert (address, from_port) == (NODE[family], 30053)
            assert answer.endswith(payload)


@families
def test_a_later_fragment_alone_takes_a_few_turns_and_is_left_alone(world: World, family: str) -> None:
    with counters(world) as maps:
        before = maps.packet_stats.read()
        between = Ends(CLIENT[family], 40000, NODE[family], 30053)
        send(world, fragments(between, b"x" * 1000, 2000)[1:])

        def counted(reason: Reason) -> int:
            return maps.packet_stats.count(reason) - before.get(reason, 0)

        eventually(lambda: counted(Reason.NO_FLOW) == 1)
        assert counted(Reason.OVERTOOK) == 8


@contextmanager
def counters(world: World) -> Iterator[Maps]:
    maps = Maps.open(Pins(world.node.bpffs))
    try:
        yield maps
    finally:
        maps.close()


@families
def test_a_stream_of_large_segments_arrives_whole_in_both_directions(world: World, family: str) -> None:
    """Virtual devices hand over packets that stand for many, with checksums yet to be made."""
    payload = hashlib.shake_256(b"seed").hexdigest(30_000).encode() + b"\n"
    for _ in range(4):
        with bound(world, family, socket.SOCK_STREAM) as client:
            client.connect((NODE[family], 30080))
            for _ in range(4):
                client.sendall(payload)
                answer = b""
                while not answer.endswith(b"\n"):
                    answer += client.recv(1 << 20)
                assert answer.endswith(payload)


@families
def test_datagrams_that_were_handed_over_as_one_are_translated_all(world: World, family: str) -> None:
    with bound(world, family, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=i", 100))
        client.connect((NODE[family], 30053))
        client.send(b"".join(f"{number:099}\n".encode() for number in range(10)))
        answers = {client.recv(4096).rpartition(b" ")[2] for _ in range(10)}
    assert answers == {f"{number:099}\n".encode() for number in range(10)}
