"""What stands in netfilter beneath eBPF: nothing in a plain cluster, everything with `--underlay=full`."""

import subprocess
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.links import detach
from kbpf.datapath.ebpf.pins import Pins
from tests.builders import endpoint, endpoint_slice, port, service, slice_port
from tests.kernel.asking import asked, deciding, status
from tests.kernel.world import World, backends
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

HERE, AWAY, HERE6 = "10.42.1.10", "10.42.2.10", "fd42:1::10"
EBPF = ("--datapath=ebpf", "--fallback=none")
TCP, UDP = {f"{HERE}:8080", f"{AWAY}:8080"}, {f"{HERE}:5353", f"{AWAY}:5353"}


def inside(world: World, *command: str) -> str:
    inside = ["nsenter", f"--net={world.node.namespace.path}", *command]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def manifests(world: World, tmp_path: Path) -> Path:
    world.pod(HERE, HERE6)
    world.serve(f"{HERE}:8080", f"{AWAY}:8080", f"{HERE}:5353/udp", f"{AWAY}:5353/udp", f"[{HERE6}]:8080")
    return tmp_path / "manifests"


def test_a_plain_cluster_leaves_nat_empty_and_its_flows_are_not_tracked(world: World, manifests: Path) -> None:
    ports, both = [port(80, "http"), port(53, "dns", "UDP")], [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]
    write_manifests(
        manifests,
        service("web", *ports),
        endpoint_slice("web", HERE, endpoint(AWAY, "n2"), ports=both),
        service("web6", port(80), cluster_ips=["fd96::10"]),
        endpoint_slice("web6", HERE6, family="IPv6"),
    )
    world.proxy(manifests, *EBPF)
    for origin in ("pod 10.42.1.100", "host"):
        assert backends(world.send(origin, "10.96.0.10:80", count=40)) == TCP
        assert backends(world.send(origin, "10.96.0.10:53/udp", count=40)) == UDP
    assert backends(world.send("host", "[fd96::10]:80", count=5)) == {f"[{HERE6}]:8080"}
    for save in ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"):
        assert "-A" not in inside(world, save, "-t", "nat")
    assert inside(world, "conntrack", "-C").strip() == "0"


def test_a_full_underlay_catches_new_connections_when_the_programs_go(world: World, manifests: Path) -> None:
    ports = [port(80, "http", node_port=30080), port(53, "dns", "UDP", node_port=30053)]
    both = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]
    web = service("web", *ports, type="LoadBalancer", ingress=["203.0.113.5"])
    write_manifests(manifests, web, endpoint_slice("web", HERE, endpoint(AWAY, "n2"), ports=both))
    proxy = world.proxy(manifests, *EBPF, "--underlay=full")
    held = status(world)["services"]
    assert [each["name"] for each in held] == ["shop/web:dns", "shop/web:http"]
    for each in held:
        assert {(one["carrier"], one["deferred"]) for one in each["frontends"]} == {("ebpf and iptables", "")}
    assert asked(world, "verify", *deciding(manifests), "--underlay=full").returncode == 0
    assert proxy.terminate() == 0  # or it would put the programs back
    stream = world.stream("pod 10.42.1.100", "10.96.0.10:80")
    stream.wait_for(50)
    detach(Pins(world.node.bpffs).links)
    stream.wait_for(100)
    report = stream.report()
    assert (report.failed, report.failures) == (0, [])
    assert status(world)["datapath"] == "iptables"
    for origin, number in (
        ("pod 10.42.1.100", "10.96.0.10:%d"),
        ("host", "10.96.0.10:%d"),
        ("outside", "203.0.113.5:%d"),
    ):
        assert backends(world.send(origin, number % 80, count=40)) == TCP
        assert backends(world.send(origin, number % 53 + "/udp", count=40)) == UDP
    assert backends(world.send("outside", "192.168.60.11:30080", count=40)) == TCP


def test_without_it_verify_names_a_net_that_is_not_there(world: World, manifests: Path) -> None:
    write_manifests(manifests, service("web"), endpoint_slice("web", HERE))
    world.proxy(manifests, *EBPF)
    assert asked(world, "verify", *deciding(manifests)).returncode == 0
    done = asked(world, "verify", *deciding(manifests), "--underlay=full")
    assert (done.returncode, "KUBE-SERVICES: no such chain" in done.stdout) == (1, True)
