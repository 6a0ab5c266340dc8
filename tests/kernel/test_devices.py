"""Packets from elsewhere by every kind of device: tunnels, VLANs, bonds, bridges, and those of pods without sockets."""

import fcntl
import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import FlowKey, Reason
from kbpf.demo.client import Client
from kbpf.demo.patience import patient
from kbpf.demo.place import Place
from kbpf.errors import CommandFailed
from kbpf.model.address import Address, packed
from tests.builders import endpoint, endpoint_slice, port, service, slice_port
from tests.kernel.ebpf.packets import IP, TCP, UDP, Ends, IPv6, Packet, ends, has_right_checksums, segment
from tests.kernel.world import World, backends, eventually, request
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

HERE, AWAY = "10.42.1.10", "10.42.2.10"
HERE6, AWAY6 = "fd42:1::10", "fd42:2::10"
MACHINE, MACHINE6 = "10.42.1.100", "fd42:1::100"
PORTS = (port(80, "http", node_port=30080), port(53, "dns", "UDP", node_port=30053))
SLICE_PORTS = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]


@pytest.fixture
def manifests(world: World, tmp_path: Path) -> Path:
    """Two Services, and the pods that answer for them."""
    for addresses in ((HERE, HERE6), (AWAY, AWAY6)):
        world.pod(*addresses)
        world.serve(*(f"[{address}]:{number}" for address in addresses for number in ("8080", "5353/udp")))
    return write_manifests(
        tmp_path / "manifests",
        service("web", *PORTS, type="NodePort"),
        endpoint_slice("web", HERE, endpoint(AWAY, "n2"), ports=SLICE_PORTS),
        service("web6", *PORTS, type="NodePort", cluster_ips=["fd96::10"]),
        endpoint_slice("web6", HERE6, endpoint(AWAY6, "n2"), ports=SLICE_PORTS, family="IPv6"),
    )


def start(world: World, manifests: Path, *options: str) -> None:
    world.proxy(manifests, "--datapath=ebpf", "--fallback=none", *options)


@contextmanager
def maps_of(world: World) -> Iterator[Maps]:
    maps = Maps.open(Pins(world.node.bpffs))
    try:
        yield maps
    finally:
        maps.close()


# ---- a tunnel: packets without an Ethernet header


PATIENCE_S = 10.0
TUN_SET_INTERFACE = 0x400454CA
TUN_WITHOUT_PREFIX = 0x1001


@pytest.fixture
def tunnel(world: World) -> Iterator[int]:
    """The far end of tun0: the test itself is the network."""
    with world.node.namespace.entered():
        fd = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(fd, TUN_SET_INTERFACE, struct.pack("16sH22x", b"tun0", TUN_WITHOUT_PREFIX))
    world.node.namespace.ip(
        "addr add 192.168.77.1/24 dev tun0", "addr add fd77::1/64 dev tun0 nodad", "link set tun0 up"
    )
    yield fd
    os.close(fd)


def answer_to(tunnel: int, packet: Packet) -> bytes:
    """The first packet to come back to where this one came from."""
    os.write(tunnel, bytes(packet))
    sender = packed(Address(packet.src))
    answers = select.poll()
    answers.register(tunnel, select.POLLIN)
    while answers.poll(patient(PATIENCE_S) * 1000):
        raw = os.read(tunnel, 4096)
        destination = raw[24:40] if raw[0] >> 4 == 6 else packed(Address(socket.inet_ntoa(raw[16:20])))
        if destination == sender:
            return raw
    raise AssertionError(f"no answer to {packet!r} within {patient(PATIENCE_S):g} s")


@pytest.mark.parametrize(
    ("layer", "node", "client"),
    [(IP, "192.168.77.1", "192.168.77.9"), (IPv6, "fd77::1", "fd77::9")],
    ids=["v4", "v6"],
)
def test_a_tunnel_without_ethernet_header_is_served(
    world: World, manifests: Path, tunnel: int, layer: type[Packet], node: str, client: str
) -> None:
    start(world, manifests, "--devices=tun*")
    for number in range(20):
        head, source_port = layer(src=client, dst=node), 40000 + number
        opening = answer_to(tunnel, head / TCP(sport=source_port, dport=30080, flags="S"))
        datagram = answer_to(tunnel, head / UDP(sport=source_port, dport=30053) / b"words")
        for raw, transport, served in ((opening, TCP, 30080), (datagram, UDP, 30053)):
            assert has_right_checksums(raw, layer)
            assert ends(layer(raw)) == Ends(node, served, client, source_port)
            assert transport in layer(raw)
        assert layer(opening)[TCP].flags == "SA"
        assert bytes(layer(datagram)[UDP].payload).endswith(b"words\n")


# ---- Ethernet devices on top of others


def lines(kind: str, name: str, peer: str) -> list[str]:
    """A device `name` with a cable below it whose other end is in the namespace `peer`."""
    if kind == "vlan":
        return [f"link add link eth0 name {name} type vlan id 5", f"link set {name} up"]
    mode = "mode active-backup miimon 100" if kind == "bond" else ""
    return [
        f"link add {name} type {kind} {mode}",
        f"link add below type veth peer name far netns {peer}",
        f"link set below master {name}",
        "link set below up",
        f"link set {name} up",
    ]


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.kernels("ebpf")) for kind in ("vlan", "bond")), "bridge"]
)
def test_a_device_on_top_of_others_is_served_and_those_below_leave_its_packets_alone(
    world: World, manifests: Path, kind: str
) -> None:
    try:
        world.node.namespace.ip(*lines(kind, "top.5", world.network.namespace.name))
    except CommandFailed as error:
        if "Unknown device type" in str(error):
            pytest.skip(f"this kernel has no {kind} devices")
        raise
    far = "n1.5" if kind == "vlan" else "far"
    if kind == "vlan":
        world.network.namespace.ip("link add link n1 name n1.5 type vlan id 5")
    for namespace, device, end in ((world.node.namespace, "top.5", "11"), (world.network.namespace, far, "1")):
        namespace.ip(
            f"addr add 192.168.77.{end}/24 dev {device}",
            f"addr add fd77::{end}/64 dev {device} nodad",
            f"link set {device} up",
        )
    start(world, manifests, "--devices=top.*")
    for node, pods in (("192.168.77.11", (HERE, AWAY)), ("[fd77::11]", (f"[{HERE6}]", f"[{AWAY6}]"))):
        for frontend, number in (("30080", 8080), ("30053/udp", 5353)):
            answers = world.send("outside", f"{node}:{frontend}", count=40, timeout_s=10)
            assert backends(answers) == {f"{pod}:{number}" for pod in pods}


TAGS = {"VLAN 5": 5, "only a priority": 0}


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_tagged_packet_is_the_vlans_and_one_that_has_only_a_priority_is_not(
    world: World, manifests: Path, tag: int
) -> None:
    """This kernel may have no VLAN devices; it takes tags off all the same."""
    start(world, manifests)
    packet = bytes(segment(Ends("198.51.100.9", 40000, str(world.node.addresses.v4), 30080)))
    with world.network.namespace.entered():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with wire, maps_of(world) as maps:
        wire.bind(("n1", 0))
        hardware = address_of(world)
        wire.send(hardware + packet[6:12] + struct.pack(">HH", 0x8100, 3 << 13 | tag) + packet[12:])
        if tag == 0:
            eventually(lambda: flows_from(maps, "198.51.100.9"))
            return
        # Behind it on the same wire: when this one has a flow, the tagged one has been seen.
        untagged = segment(Ends("198.51.100.10", 40000, str(world.node.addresses.v4), 30080))
        wire.send(hardware + bytes(untagged)[6:])
        eventually(lambda: flows_from(maps, "198.51.100.10"))
        assert not flows_from(maps, "198.51.100.9")


def address_of(world: World) -> bytes:
    with world.node.namespace.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as asked:
        asked.bind(("eth0", 0))
        hardware: bytes = asked.getsockname()[4]
    return hardware


def flows_from(maps: Maps, client: str) -> list[FlowKey]:
    return [key for key in maps.flows.entries() if key.source == packed(Address(client))]


# ---- pods behind a bridge


def test_packets_to_a_pod_behind_a_bridge_are_translated_back(world: World, manifests: Path) -> None:
    """With netfilter on bridges, which node set-up scripts switch on, the kernel looks at a frame twice."""
    behind_bridge(world, HERE, HERE6)
    start(world, manifests)
    answers = world.send("outside", f"{world.node.addresses.v4}:30080", count=40, timeout_s=10)
    assert backends(answers) == {f"{HERE}:8080", f"{AWAY}:8080"}


# ---- pods without a socket on this kernel


def behind_bridge(world: World, *addresses: str) -> None:
    """The pod's cable ends in a bridge, as some network plugins and libvirt do it."""
    device = f"p{world.node.pods.index(world.pod(addresses[0]))}"
    world.node.namespace.ip(
        "link add br0 type bridge",
        "link set br0 up",
        f"link set {device} master br0",
        "addr add 169.254.1.1/32 dev br0 scope link",
        "addr add fe80::1/128 dev br0 nodad scope link",
        *(f"route replace {a} dev br0 src {world.node.addresses.like(a)}" for a in addresses),
    )


MODES = {
    "prefix": ("--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=p", "--pod-devices=p*"),
    "bridge": ("--detect-local-mode=BridgeInterface", "--pod-bridge-interface=br0", "--pod-devices=br*"),
    "range": ("--pod-devices=p*",),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_pod_without_a_socket_here_is_served_on_its_device_under_its_own_address(
    world: World, manifests: Path, mode: str
) -> None:
    machine = world.pod(MACHINE, MACHINE6)
    if mode == "bridge":
        behind_bridge(world, MACHINE, MACHINE6)
    start(world, manifests, *MODES[mode])
    client = Client(Place(machine.namespace.path, world.network.place.cgroup))
    for vip, address, pods in (
        ("10.96.0.10", MACHINE, (HERE, AWAY)),
        ("[fd96::10]", MACHINE6, (f"[{HERE6}]", f"[{AWAY6}]")),
    ):
        for frontend, number in (("80", 8080), ("53/udp", 5353)):
            answers = client.send(request(f"{vip}:{frontend}", count=40, timeout_s=10))
            assert backends(answers) == {f"{pod}:{number}" for pod in pods}
            assert {answer.source for answer in answers} == {address}
    with maps_of(world) as maps:
        # A UDP client that gets the port of one before it goes on with that one's flow: once in some dozen runs.
        assert maps.packet_stats.count(Reason.CHOSEN) >= 150
