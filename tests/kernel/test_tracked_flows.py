"""What connection tracking, or the record in its place, must do with packets that begin no new flow.

Errors on their way back, segments of another time, source ports that come again or look like node ports, the marks of
tunnelled packets. Where it makes a difference for packets from elsewhere, both datapaths are asked.
"""

import errno
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, TCPerror
from scapy.packet import Packet

from kbpf.demo.namespaces import Namespace
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

WEB, WEB_PORT, DNS_PORT = "10.96.0.10", 30080, 30053
HERE, AWAY, CALLER = "10.42.1.10", "10.42.2.10", "10.42.1.100"
NODE, OTHER_NODE, CLIENT = "192.168.60.11", "192.168.60.12", "198.51.100.7"
ETH_P_IP = 0x0800
CLOSE_WITH_RESET = struct.pack("ii", 1, 0)
TWO_QUESTIONS = """
import socket, sys, threading

together, answers = threading.Barrier(2), 0
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(3)
        ask = lambda: (together.wait(), client.sendto(b"?", (sys.argv[1], 53)))
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers += sum(client.recvfrom(100)[1] == (sys.argv[1], 53) for _ in threads)
print(answers, "answers")
"""
RULES = ("--datapath=iptables", "--fallback=none")

Start = Callable[..., None]


@pytest.fixture(params=["iptables", "ebpf"])
def datapath(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(world: World, tmp_path: Path) -> Start:
    """kbpf with a TCP Service of these pods, and a UDP Service of a pod elsewhere on which nothing listens."""

    def start(*options: str, pods: tuple[str, ...] = (AWAY,)) -> None:
        manifests = write_manifests(
            tmp_path / "manifests",
            service("web", port(80, node_port=WEB_PORT), type="NodePort"),
            endpoint_slice("web", *pods),
            service("dns", port(53, protocol="UDP", node_port=DNS_PORT), cluster_ips=["10.96.0.53"], type="NodePort"),
            endpoint_slice("dns", AWAY, ports=[slice_port(5353, protocol="UDP")]),
        )
        world.serve(*(f"{pod}:8080" for pod in pods))
        world.pod(AWAY)
        world.proxy(manifests, *options)

    return start


class Ear:
    """Hears every IPv4 packet that arrives in a namespace."""

    def __init__(self, heard: socket.socket) -> None:
        self._socket = heard

    def packets(self, wanted: Callable[[Packet], bool], timeout_s: float) -> list[Packet]:
        """Those wanted that came until now, or come within the time: it ends with the first of them."""
        found: list[Packet] = []
        deadline = time.monotonic() + timeout_s
        while not found and (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                packet = IP(self._socket.recv(65536))
            except TimeoutError:
                break
            found += [packet] if wanted(packet) else []
        return found


@contextmanager
def listening(namespace: Namespace) -> Iterator[Ear]:
    with namespace.entered():
        heard = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    with heard:
        yield Ear(heard)


def throw(namespace: Namespace, packet: Packet) -> None:
    with namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as thrower:
        thrower.sendto(bytes(packet), (packet.dst, 0))


def on_node(world: World, *command: str) -> str:
    inside = ["nsenter", f"--net={world.node.namespace.path}", *command]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


def says(client: socket.socket) -> str:
    """Which backend answers now."""
    client.settimeout(3)
    client.sendall(b"?\n")
    return client.recv(1000).decode().split()[0]


@contextmanager
def connected(namespace: Namespace, address: str, number: int, source_port: int = 0) -> Iterator[socket.socket]:
    with namespace.entered():
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.settimeout(3)
        client.bind(("", source_port))
        client.connect((address, number))
        yield client


# -- segments of another time ------------------------------------------------------------------------------------------


def test_a_segment_far_outside_of_the_window_never_reaches_the_client_and_the_connection_goes_on(
    world: World, start: Start
) -> None:
    """Untranslated, it would make the client reset what it takes for a stranger's connection."""
    start(*RULES)
    caller = world.pod(CALLER).namespace
    with connected(caller, WEB, 80) as client, listening(caller) as ear:
        assert says(client) == f"{AWAY}:8080"
        [answer] = ear.packets(lambda packet: TCP in packet and packet[TCP].sport == 80, timeout_s=3)
        far = (answer[TCP].seq + (1 << 30)) % (1 << 32)
        late = IP(src=AWAY, dst=CALLER) / TCP(sport=8080, dport=client.getsockname()[1], flags="A", seq=far, ack=1)
        throw(world.pod(AWAY).namespace, late)
        assert ear.packets(lambda packet: packet.src == AWAY, timeout_s=0.5) == []
        assert says(client) == f"{AWAY}:8080"
        # Without the rule it does arrive: the test would notice.
        assert "INVALID" in on_node(world, "iptables", "-S", "KUBE-FORWARD", "1")
        on_node(world, "iptables", "-D", "KUBE-FORWARD", "1")
        throw(world.pod(AWAY).namespace, late)
        assert ear.packets(lambda packet: packet.src == AWAY, timeout_s=2)


@pytest.mark.parametrize("is_liberal", [False, True])
def test_half_a_flow_passes_where_connection_tracking_is_liberal(
    world: World, start: Start, *, is_liberal: bool
) -> None:
    """A router that sees only the answers of some flows must be able to forward them."""
    start(*RULES, *(["--conntrack-tcp-be-liberal"] if is_liberal else []))
    caller = world.pod(CALLER).namespace
    with listening(caller) as ear:
        answer = IP(src=CLIENT, dst=CALLER) / TCP(sport=443, dport=40000, flags="SA", seq=7, ack=8)
        throw(world.network.namespace, answer)
        heard = ear.packets(lambda packet: packet.src == CLIENT, timeout_s=2 if is_liberal else 0.5)
    assert bool(heard) is is_liberal


def test_a_connection_begun_before_its_service_does_not_hold_up_the_next_one(world: World, tmp_path: Path) -> None:
    """It is lost itself, as with kube-proxy: its first packet went out untranslated, and the others follow it."""
    manifests = write_manifests(tmp_path / "manifests", service("other", port(80), cluster_ips=["10.96.0.99"]))
    world.serve(f"{HERE}:8080")
    world.proxy(manifests, *RULES)
    with world.pod(CALLER).namespace.entered():
        early = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with early:
        early.setblocking(False)
        early.connect_ex((WEB, 80))
        write_manifests(manifests, service("web", port(80)), endpoint_slice("web", HERE))
        eventually(lambda: backends(world.send(f"pod {CALLER}", f"{WEB}:80", timeout_s=0.5)) == {f"{HERE}:8080"})
        assert backends(world.send(f"pod {CALLER}", f"{WEB}:80", count=20)) == {f"{HERE}:8080"}


# -- errors on their way back ------------------------------------------------------------------------------------------


def test_a_router_s_word_about_the_size_of_packets_reaches_the_pod_translated(
    world: World, start: Start, datapath: str
) -> None:
    start(f"--datapath={datapath}", "--fallback=none", pods=(HERE,))
    pod = world.pod(HERE).namespace
    with connected(world.network.namespace, NODE, WEB_PORT) as client, listening(pod) as ear:
        assert says(client) == f"{HERE}:8080"
        address, number = client.getsockname()
        quoted = IP(src=NODE, dst=address) / TCP(sport=WEB_PORT, dport=number, flags="A")
        throw(world.network.namespace, IP(src=CLIENT, dst=NODE) / ICMP(type=3, code=4, nexthopmtu=1400) / quoted)
        heard = ear.packets(lambda packet: ICMP in packet and packet[ICMP].type == 3, timeout_s=3)
    assert heard
    assert (heard[0].dst, heard[0][IPerror].src, heard[0][TCPerror].sport) == (HERE, HERE, 8080)


def test_a_closed_port_of_a_pod_elsewhere_is_refused_in_the_name_of_the_node_port(
    world: World, start: Start, datapath: str
) -> None:
    start(f"--datapath={datapath}", "--fallback=none")
    with world.network.namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(3)
        client.connect((NODE, DNS_PORT))
        client.send(b"?")
        with pytest.raises(ConnectionRefusedError):  # only an error that quotes the client's own packet is one
            client.recv(100)


# -- source ports ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closes_with_reset", [False, True])
def test_a_client_that_uses_one_source_port_again_and_again_gets_every_backend_and_none_that_left(
    world: World, start: Start, datapath: str, tmp_path: Path, *, closes_with_reset: bool
) -> None:
    def answering() -> str:
        with connected(world.network.namespace, NODE, WEB_PORT, source_port=43000) as client:
            name = says(client)
            if closes_with_reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CLOSE_WITH_RESET)
            else:
                client.shutdown(socket.SHUT_WR)
                assert client.recv(1) == b""
                time.sleep(0.01)
            return name

    start(f"--datapath={datapath}", "--fallback=none", pods=(HERE, AWAY))
    names = {f"{pod}:8080": pod for pod in (HERE, AWAY)}
    answers = [answering() for _ in range(40)]
    assert set(answers) == set(names)
    staying = next(name for name in names if name != answers[-1])
    web = service("web", port(80, node_port=WEB_PORT), type="NodePort")
    write_manifests(tmp_path / "manifests", web, endpoint_slice("web", names[staying]))
    eventually(lambda: {answering() for _ in range(20)} == {staying})


def test_two_questions_at_the_same_moment_from_one_socket_are_both_answered(world: World, tmp_path: Path) -> None:
    """Resolvers ask for both kinds of address so. With rules the kernel may lose one; in the socket none is lost."""
    manifests = write_manifests(
        tmp_path / "manifests",
        service("dns", port(53, protocol="UDP"), cluster_ips=["10.96.0.53"]),
        endpoint_slice("dns", HERE, AWAY, ports=[slice_port(5353, protocol="UDP")]),
    )
    world.serve(f"{HERE}:5353/udp", f"{AWAY}:5353/udp")
    world.proxy(manifests, "--datapath=ebpf", "--fallback=none")
    done = subprocess.run(
        [sys.executable, "-c", TWO_QUESTIONS, "10.96.0.53", "200"],
        preexec_fn=world.pod(CALLER).place.enter,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["400", "answers"]


def test_answers_to_a_source_port_that_is_a_node_port_reach_their_owner(
    world: World, start: Start, datapath: str
) -> None:
    start(f"--datapath={datapath}", "--fallback=none")
    with world.network.namespace.entered():
        server = socket.create_server((CLIENT, 8443))
    with server:
        for origin in (world.node.namespace, world.pod(CALLER).namespace):
            with connected(origin, CLIENT, 8443, source_port=WEB_PORT) as client:
                server.settimeout(3)
                accepted, _ = server.accept()
                with accepted:
                    accepted.sendall(b"for its owner")
                    assert client.recv(100) == b"for its owner"


def test_an_answer_to_a_datagram_from_a_node_port_reaches_its_owner_with_rules_and_is_a_call_with_ebpf(
    world: World, start: Start, datapath: str
) -> None:
    """A datagram does not say that it is an answer, and the programs stand before connection tracking."""
    start(f"--datapath={datapath}", "--fallback=none")
    with world.network.namespace.entered():
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((CLIENT, 5000))
    with world.node.namespace.entered():
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.bind((NODE, DNS_PORT))
    with server, client:
        server.settimeout(3)
        client.settimeout(3 if datapath == "iptables" else 0.5)
        client.sendto(b"?", (CLIENT, 5000))
        server.sendto(b"for its owner", server.recvfrom(100)[1])
        if datapath == "iptables":
            assert client.recv(100) == b"for its owner"
        else:
            with pytest.raises(TimeoutError):
                client.recv(100)


def test_the_port_of_a_node_port_is_free_in_pods_and_on_the_node(world: World, start: Start, datapath: str) -> None:
    start(f"--datapath={datapath}", "--fallback=none")
    for origin in (world.node.namespace, world.pod(CALLER).namespace):
        for number in (WEB_PORT, 30999):
            with origin.entered():
                socket.create_server(("", number)).close()


# -- tunnels -----------------------------------------------------------------------------------------------------------


def test_the_outer_packet_of_a_tunnel_is_not_masqueraded_with_the_inner_one(world: World, tmp_path: Path) -> None:
    """A mark that outlives its rule goes to the outer packet, whose source port and checksum suffer for it."""
    manifests = write_manifests(tmp_path / "manifests", service("web", port(80)), endpoint_slice("web", "10.99.0.10"))
    world.node.namespace.ip(
        f"link add tunnel0 type vxlan id 7 dstport 8472 remote {OTHER_NODE} dev eth0",
        "link set tunnel0 address 02:00:00:00:00:07 up",
        "addr add 10.99.0.1/24 dev tunnel0",
        "neigh add 10.99.0.10 lladdr 02:00:00:00:00:10 dev tunnel0",
    )
    world.proxy(manifests, *RULES)

    def masqueraded_flows() -> int:
        listed = on_node(world, "iptables", "-t", "nat", "-L", "KUBE-POSTROUTING", "-v", "-x", "-n")
        return int(next(line.split()[0] for line in listed.splitlines() if "MASQUERADE" in line))

    def call_through_the_tunnel() -> None:
        """Nobody answers there; what counts is that the first packet left the node."""
        with listening(world.network.namespace) as ear:
            with world.node.namespace.entered():
                client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            with client:
                client.setblocking(False)
                assert client.connect_ex((WEB, 80)) == errno.EINPROGRESS
                assert ear.packets(lambda packet: UDP in packet and packet[UDP].dport == 8472, timeout_s=3)

    for count in (1, 2, 3):
        call_through_the_tunnel()
        assert masqueraded_flows() == count
    # Without the rule that clears the mark it is two a call: the test would notice.
    on_node(world, "iptables", "-t", "nat", "-D", "KUBE-POSTROUTING", "-j", "MARK", "--xor-mark", "0x4000")
    call_through_the_tunnel()
    assert masqueraded_flows() == 5
