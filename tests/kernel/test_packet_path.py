"""Clients outside the cluster, with real packets: the packet programs on the uplink of a node where kbpf runs."""

import http.client
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import libbpf, trials
from kbpf.datapath.ebpf.hooks import PROGRAM_SCHED_CLS, TCX_EGRESS, TCX_INGRESS
from kbpf.datapath.ebpf.links import closing
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import Reason
from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.exchange import Answer
from kbpf.demo.proxy import Proxy
from kbpf.model.objects import EndpointSlice, Service
from tests.builders import endpoint, endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

HERE, AWAY = "10.42.1.10", "10.42.2.10"
HERE6, AWAY6 = "fd42:1::10", "fd42:2::10"
VIP, VIP6, EXTERNAL_IP = "203.0.113.5", "2001:db8:113::5", "203.0.113.9"
NODE, NODE6, CLIENT, CLIENT6 = "192.168.60.11", "fd60::11", "198.51.100.7", "2001:db8:51::7"
POLICIES = ("Cluster", "Local")


def web(policy: str = "Cluster") -> list[Service | EndpointSlice]:
    """TCP and UDP, both families, every kind of frontend."""
    ports = (port(80, "http", node_port=30080), port(53, "dns", "UDP", node_port=30053))
    common = {"type": "LoadBalancer", "external_traffic_policy": policy}
    slice_ports = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]
    return [
        service("web", *ports, ingress=[VIP], external_ips=[EXTERNAL_IP], **common),
        endpoint_slice("web", HERE, endpoint(AWAY, "n2"), ports=slice_ports),
        service("web6", *ports, cluster_ips=["fd96::10"], ingress=[VIP6], **common),
        endpoint_slice("web6", HERE6, endpoint(AWAY6, "n2"), ports=slice_ports, family="IPv6"),
    ]


Start = Callable[..., Proxy]


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(tmp_path / "manifests", *web())


@pytest.fixture
def attachment() -> str:
    """How packet programs get onto devices. Tests where the way could matter take both."""
    return os.environ.get("KBPF_TEST_TC_ATTACHMENT", "auto")


either_attachment = pytest.mark.parametrize("attachment", ["tcx", "clsact"])


@pytest.fixture
def start(world: World, manifests: Path, attachment: str) -> Start:
    """kbpf with these objects, and the pods that answer."""
    for addresses in ((HERE, HERE6), (AWAY, AWAY6)):
        world.pod(*addresses)
    named = [f"{pod}:8080" for pod in (HERE, AWAY)] + [f"{pod}:5353/udp" for pod in (HERE, AWAY)]
    named += [f"[{pod}]:8080" for pod in (HERE6, AWAY6)] + [f"[{pod}]:5353/udp" for pod in (HERE6, AWAY6)]

    def start(*objects: Service | EndpointSlice, options: tuple[str, ...] = ()) -> Proxy:
        write_manifests(manifests, *(objects or web()))
        world.serve(*named)
        ways = ("--datapath=ebpf", "--fallback=none", f"--tc-attachment={attachment}")
        return world.proxy(manifests, *ways, *options)

    return start


def nat_rules(world: World) -> str:
    return inside(world, "iptables-save", "-t", "nat")


def metric(world: World, name: str) -> float:
    with world.node.namespace.entered():
        connection = http.client.HTTPConnection("127.0.0.1", 10249, timeout=10)
        connection.connect()
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def inside(world: World, *command: str) -> str:
    done = subprocess.run(
        ["nsenter", f"--net={world.node.namespace.path}", *command], capture_output=True, text=True, check=True
    )
    return done.stdout


def sources(answers: list[Answer]) -> set[str | None]:
    return {answer.source for answer in answers}


FRONTENDS = {
    "node port": (f"{NODE}:30080", f"[{NODE6}]:30080"),
    "load balancer": (f"{VIP}:80", f"[{VIP6}]:80"),
    "node port, UDP": (f"{NODE}:30053/udp", f"[{NODE6}]:30053/udp"),
    "load balancer, UDP": (f"{VIP}:53/udp", f"[{VIP6}]:53/udp"),
}


def expected(frontend: str, pods: tuple[str, ...]) -> set[str]:
    number = 5353 if frontend.endswith("udp") else 8080
    return {f"[{pod}]:{number}" if ":" in pod else f"{pod}:{number}" for pod in pods}


@either_attachment
def test_every_external_frontend_is_served_without_a_rule_for_it(world: World, start: Start) -> None:
    proxy = start()
    for frontends in FRONTENDS.values():
        for frontend, pods, client in zip(frontends, ((HERE, AWAY), (HERE6, AWAY6)), (CLIENT, CLIENT6), strict=True):
            answers = world.send("outside", frontend, count=40)
            assert backends(answers) == expected(frontend, pods), frontend
            assert client not in sources(answers), frontend
    assert backends(world.send("outside", f"{EXTERNAL_IP}:80", count=40)) == expected("", (HERE, AWAY))
    assert metric(world, 'kbpf_packet_results_total{reason="reversed"}') > 0
    rules = nat_rules(world)
    assert "MASQUERADE" in rules
    assert "KUBE-SVC" not in rules
    assert "left to iptables" not in proxy.log.read_text()


def test_under_a_local_policy_local_pods_see_the_clients_address(world: World, start: Start) -> None:
    start(*web("Local"))
    for frontends in FRONTENDS.values():
        for frontend, pod, client in zip(frontends, (HERE, HERE6), (CLIENT, CLIENT6), strict=True):
            answers = world.send("outside", frontend, count=20)
            assert backends(answers) == expected(frontend, (pod,)), frontend
            assert sources(answers) == {client}, frontend


def test_without_endpoints_a_client_is_refused_and_without_local_ones_it_waits(world: World, start: Start) -> None:
    ports = [port(80, node_port=30080)]
    start(
        service("empty", *ports, type="LoadBalancer", ingress=[VIP]),
        service(
            "away",
            type="LoadBalancer",
            external_traffic_policy="Local",
            cluster_ips=["10.96.0.11"],
            ingress=[EXTERNAL_IP],
        ),
        endpoint_slice("away", endpoint(AWAY, "n2")),
    )
    for frontend in (f"{VIP}:80", f"{NODE}:30080"):
        [answer] = world.send("outside", frontend)
        assert answer.error == "ECONNREFUSED"
    [answer] = world.send("outside", f"{EXTERNAL_IP}:80", timeout_s=0.5)
    assert answer.error == "timeout"


@pytest.mark.parametrize("origin", ["host", "pod 10.42.1.100"])
def test_what_kube_proxy_drops_reaches_nobody_who_answers_for_the_address(
    world: World, start: Start, origin: str
) -> None:
    """A local policy without a local endpoint: the caller waits, whatever stands behind the uplink."""
    dropped, unknown = "10.96.0.77", "10.96.0.78"
    ports = (port(80), port(53, "dns", "UDP"))
    start(
        service("away", *ports, cluster_ips=[dropped], internal_traffic_policy="Local"),
        endpoint_slice("away", endpoint(AWAY, "n2"), ports=[slice_port(8080), slice_port(5353, "dns", "UDP")]),
    )
    world.network.add_addresses(dropped, unknown)
    place = world.network.place
    listeners = [Listener(place, vip, 80) for vip in (dropped, unknown)]
    listeners += [Listener(place, vip, 53, "udp") for vip in (dropped, unknown)]
    impostor = EchoServer(listeners)
    try:
        for suffix in (":80", ":53/udp"):
            [answer] = world.send(origin, f"{unknown}{suffix}", timeout_s=5)
            assert answer.error is None
            [answer] = world.send(origin, f"{dropped}{suffix}", timeout_s=1)
            assert answer.error == "timeout"
    finally:
        impostor.close()


def test_a_plain_cluster_has_no_nat_rule_and_a_client_of_a_cluster_ip_outside_brings_one(
    world: World, start: Start, manifests: Path
) -> None:
    start(service("web", port(80)), endpoint_slice("web", HERE, endpoint(AWAY, "n2")))
    assert backends(world.send("pod 10.42.1.100", "10.96.0.10:80", count=20)) == expected("", (HERE, AWAY))
    assert "-A" not in nat_rules(world)
    answers = world.send("outside", "10.96.0.10:80", count=40, timeout_s=3)
    assert backends(answers) == expected("", (HERE, AWAY))
    assert CLIENT not in sources(answers)
    assert "MASQUERADE" in nat_rules(world)
    inside(world, "conntrack", "-F")
    write_manifests(manifests, service("other", port(80), cluster_ips=["10.96.0.99"]))
    eventually(lambda: "-A" not in nat_rules(world))


NEXT_LAYOUT = """
import sys
from kbpf.datapath.ebpf import layout
layout.LAYOUT_VERSION += 1
from kbpf.__main__ import main
main()
"""


@either_attachment
def test_connections_outlive_a_kbpf_whose_maps_have_another_layout(
    world: World, start: Start, attachment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = start(*web())
    sessions = [world.sessions("outside", to, count=10) for to in (f"{VIP}:80", f"{NODE}:30080", f"[{VIP6}]:80")]
    before = [[answer.backend for answer in each.ping()] for each in sessions]
    folder = Pins(world.node.bpffs).folder
    assert proxy.terminate() == 0
    monkeypatch.setattr("kbpf.demo.proxy.COMMAND", (sys.executable, "-c", NEXT_LAYOUT))
    world.proxy(proxy.manifests, "--datapath=ebpf", "--fallback=none", f"--tc-attachment={attachment}")
    assert not folder.exists()
    assert [[answer.backend for answer in each.ping()] for each in sessions] == before
    assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))


def test_a_forward_chain_that_drops_by_default_lets_service_traffic_pass(world: World, start: Start) -> None:
    start()
    inside(world, "iptables", "-P", "FORWARD", "DROP")
    assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))


@either_attachment
@pytest.mark.parametrize("policy", POLICIES)
def test_connections_outlive_a_kill_and_new_programs(world: World, start: Start, policy: str, attachment: str) -> None:
    proxy = start(*web(policy))
    sessions = world.sessions("outside", f"{VIP}:80", count=10)
    stream = world.stream("outside", f"{NODE}:30080")
    stream.wait_for(20)
    before = [answer.backend for answer in sessions.ping()]
    proxy.kill()
    stream.wait_for(50)
    assert [answer.backend for answer in sessions.ping()] == before
    # Another size of a map that knows nothing of flows: other programs.
    options = ("--datapath=ebpf", "--fallback=none", f"--tc-attachment={attachment}", "--bpf-local-addr-entries=2048")
    replaced = world.proxy(proxy.manifests, *options)
    report = stream.wait_for(50)
    assert "loaded the programs" in replaced.log.read_text()
    assert (report.failed, report.failures) == (0, [])
    assert [answer.backend for answer in sessions.ping()] == before


@pytest.mark.parametrize("policy", POLICIES)
def test_a_connection_stays_when_its_endpoint_and_its_service_leave(
    world: World, start: Start, manifests: Path, policy: str
) -> None:
    """If it is masqueraded, the rule stays as well: without any, the kernel would stop to translate."""
    start(*web(policy))
    sessions = world.sessions("outside", f"{VIP}:80", count=3)
    before = [answer.backend for answer in sessions.ping()]
    write_manifests(manifests, service("other", port(80), cluster_ips=["10.96.0.99"]))
    eventually(lambda: backends(world.send("outside", f"{VIP}:80", timeout_s=0.2)) == {None})
    assert [answer.backend for answer in sessions.ping()] == before


def test_one_source_port_for_connection_after_connection(world: World, start: Start) -> None:
    """Each SYN begins anew, although the flow before it is remembered."""
    start()
    answers = [world.send("outside", f"{VIP}:80", source_port=45000, timeout_s=3)[0] for _ in range(12)]
    assert backends(answers) == expected("", (HERE, AWAY))


def test_two_frontends_with_one_backend_serve_one_client_port_at_the_same_time(world: World, start: Start) -> None:
    pod = endpoint_slice("web", HERE)
    start(
        service("web", port(80, node_port=30080), type="LoadBalancer", external_traffic_policy="Local", ingress=[VIP]),
        pod,
    )
    with from_port(world, 45001, VIP, 80) as first, from_port(world, 45001, NODE, 30080) as second:
        seen = []
        for _ in range(3):
            for client in (first, second):
                client.sendall(b"words\n")
                backend, source, source_port, _ = client.recv(2048).decode().split()
                seen.append((backend, source, int(source_port)))
    assert {backend for backend, _, _ in seen} == {f"{HERE}:8080"}
    assert {source for _, source, _ in seen} == {CLIENT}
    assert len({source_port for _, _, source_port in seen}) == 2


@contextmanager
def from_port(world: World, number: int, address: str, to: int) -> Iterator[socket.socket]:
    with world.network.namespace.entered():
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    with made:
        made.settimeout(5)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((CLIENT6 if ":" in address else CLIENT, number))
        made.connect((address, to))
        yield made


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("vip", "pod"), [(VIP, HERE), (VIP6, HERE6)], ids=["v4", "v6"])
def test_a_small_mtu_on_the_way_to_the_backend_reaches_the_client(
    world: World, start: Start, policy: str, vip: str, pod: str
) -> None:
    """The node says "fragmentation needed" or "packet too big" about a packet that the client never sent."""
    frontend = service("web", type="LoadBalancer", external_traffic_policy=policy, ingress=[vip])
    if vip is VIP6:
        frontend = service(
            "web", type="LoadBalancer", external_traffic_policy=policy, cluster_ips=["fd96::10"], ingress=[vip]
        )
    start(frontend, endpoint_slice("web", pod, family="IPv6" if ":" in pod else "IPv4"))
    device = f"p{world.node.pods.index(world.pod(pod))}"
    # A route's, not the device's: the way back keeps its size.
    world.node.namespace.ip(f"route change {pod} dev {device} src {world.node.addresses.like(pod)} mtu 1300")
    with from_port(world, 45100, vip, 80) as client:
        client.sendall(b"x" * 20_000 + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += client.recv(65536)
    assert answer.count(b"x") >= 20_000
    assert packet_counter(world, Reason.ERROR_TRANSLATED) > 0


def packet_counter(world: World, reason: Reason) -> int:
    maps = Maps.open(Pins(world.node.bpffs))
    try:
        return maps.packet_stats.count(reason)
    finally:
        maps.close()


RETURN_DROP = struct.pack("=BBhi", 0xB7, 0, 0, 2) + struct.pack("=BBhi", 0x95, 0, 0, 0)


@contextmanager
def foreign_program(world: World, instructions: bytes, attach_type: int) -> Iterator[None]:
    """Of somebody else, on the uplink."""
    with world.node.namespace.entered():
        index = socket.if_nametoindex("eth0")
        with closing(trials.load_program(PROGRAM_SCHED_CLS, 0, instructions)) as program_fd:
            link_fd = libbpf.link_create(program_fd, index, attach_type)
    try:
        yield
    finally:
        os.close(link_fd)


def test_other_programs_on_the_device_run_before_and_after(world: World, start: Start, manifests: Path) -> None:
    with (
        foreign_program(world, trials.RETURN_NEXT, TCX_INGRESS),
        foreign_program(world, trials.RETURN_NEXT, TCX_EGRESS),
    ):
        start()
        assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))
        for attach_type in (TCX_INGRESS, TCX_EGRESS):
            with foreign_program(world, RETURN_DROP, attach_type):
                assert backends(world.send("outside", f"{VIP}:80", timeout_s=0.3)) == {None}
        assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))


@either_attachment
def test_filters_of_others_run_before_and_after_ours_and_stay(world: World, start: Start, attachment: str) -> None:
    next_program, drop = "1,6 0 0 4294967295", "1,6 0 0 2"

    def tc(command: str, *code: str) -> None:
        inside(world, "tc", *command.split(), *code)

    def filters() -> str:
        return "".join(inside(world, "tc", "filter", "show", "dev", "eth0", side) for side in ("ingress", "egress"))

    tc("qdisc add dev eth0 clsact")
    for side in ("ingress", "egress"):
        for priority in (1, 60000):
            tc(f"filter add dev eth0 {side} prio {priority} handle 1 bpf direct-action bytecode", next_program)
    before = filters()
    proxy = start()
    assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))
    for side in ("ingress", "egress"):
        for priority in (2, 60001):
            tc(f"filter add dev eth0 {side} prio {priority} handle 1 bpf direct-action bytecode", drop)
            assert backends(world.send("outside", f"{VIP}:80", timeout_s=0.3)) == {None}
            tc(f"filter del dev eth0 {side} prio {priority}")
    assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))
    proxy.terminate()
    proxy.cleanup()
    assert filters() == before


def test_a_change_of_the_attachment_interrupts_nothing(world: World, manifests: Path, start: Start) -> None:
    proxy = start(options=("--tc-attachment=clsact",))
    stream = world.stream("outside", f"{NODE}:30080")
    stream.wait_for(20)
    for attachment in ("tcx", "clsact"):
        proxy.terminate()
        proxy = world.proxy(manifests, "--datapath=ebpf", "--fallback=none", f"--tc-attachment={attachment}")
        report = stream.wait_for(50)
        assert (report.failed, report.failures) == (0, [])
        assert ("kbpf" in inside(world, "tc", "filter", "show", "dev", "eth0", "ingress")) == (attachment == "clsact")


@either_attachment
def test_a_device_that_becomes_an_uplink_is_served(world: World, start: Start) -> None:
    proxy = start()
    world.node.namespace.ip(
        "link add up1 type veth peer name peer1",
        "link set up1 up",
        "link set peer1 up",
        "route add default dev up1 metric 999",
    )
    eventually(lambda: "the packet programs to eth0, up1" in proxy.log.read_text())
    world.node.namespace.ip("link del up1")
    assert backends(world.send("outside", f"{VIP}:80", count=40)) == expected("", (HERE, AWAY))


def test_named_devices_are_served(world: World, start: Start) -> None:
    world.node.namespace.ip("link add vm1 type veth peer name peer1", "link set vm1 up")
    proxy = start(options=("--pod-devices=vm*",))
    assert "the packet programs to eth0, vm1" in proxy.log.read_text()


def test_masquerading_keeps_the_node_from_being_taken_for_the_client(world: World, start: Start) -> None:
    """An UDP answer of a remote pod may arrive for a port of this node that is also a node port."""
    start()
    answers = world.send("outside", f"{NODE}:30053/udp", count=300, timeout_s=1)
    assert {answer.error for answer in answers} == {None}
