"""What only a packet can show of the rules: beside a firewall that forwards nothing, and in pieces."""

import json
import socket
import subprocess
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from kbpf.demo.node import OUTSIDE
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

POD, AWAY, CALLER = "10.42.1.10", "10.42.2.10", "10.42.1.100"
NODE, WEB_PORT, DNS_PORT = "192.168.60.11", 30080, 30053
DNS = "10.96.0.53"
MORE_THAN_TWO_PACKETS = 4000


@pytest.fixture
def world_with_rules(world: World, tmp_path: Path) -> World:
    """A TCP Service with a pod here and one elsewhere, a UDP Service with the one elsewhere; both have node ports."""
    manifests = write_manifests(
        tmp_path / "manifests",
        service("web", port(80, node_port=WEB_PORT), type="NodePort"),
        endpoint_slice("web", POD, AWAY),
        service("dns", port(53, protocol="UDP", node_port=DNS_PORT), cluster_ips=[DNS], type="NodePort"),
        endpoint_slice("dns", AWAY, ports=[slice_port(5353, protocol="UDP")]),
    )
    world.serve(f"{POD}:8080", f"{AWAY}:8080", f"{AWAY}:5353/udp")
    world.proxy(manifests, "--datapath=iptables", "--fallback=none")
    return world


def test_flows_of_services_pass_a_firewall_that_forwards_nothing_and_no_others_do(world_with_rules: World):
    world = world_with_rules
    assert backends(world.send("outside", f"{POD}:8080", timeout_s=0.3)) == {f"{POD}:8080"}
    inside = ["nsenter", f"--net={world.node.namespace.path}"]
    subprocess.run([*inside, "iptables", "-P", "FORWARD", "DROP"], check=True)
    found = backends(world.send("outside", f"{NODE}:{WEB_PORT}", count=40, timeout_s=0.3))
    assert found == {f"{POD}:8080", f"{AWAY}:8080"}
    assert backends(world.send("outside", f"{POD}:8080", timeout_s=0.3)) == {None}


@pytest.mark.parametrize(("caller", "address", "number"), [(CALLER, DNS, 53), ("", NODE, DNS_PORT)])
def test_a_datagram_in_several_packets_arrives_whole(world_with_rules: World, caller: str, address: str, number: int):
    world = world_with_rules
    namespace = world.pod(caller).namespace if caller else world.network.namespace
    with namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(2)
        client.connect((address, number))
        client.send(b"x" * MORE_THAN_TWO_PACKETS)
        assert client.recv(MORE_THAN_TWO_PACKETS).startswith(f"{AWAY}:5353 ".encode())


def test_a_neighbour_does_not_reach_what_listens_on_loopback(world_with_rules: World):
    """Node ports on 127.0.0.1 need route_localnet, which alone would let packets for 127.0.0.1 in: CVE-2020-8558."""
    node, network = world_with_rules.node.namespace, world_with_rules.network.namespace
    with node.entered():
        assert Path("/proc/sys/net/ipv4/conf/all/route_localnet").read_text() == "1\n"
        daemon = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        daemon.bind(("127.0.0.1", 9099))
        daemon.settimeout(0.5)
        shown = subprocess.run(
            ["nsenter", f"--net={node.path}", "ip", "-json", "link", "show", "eth0"], capture_output=True, check=True
        )
    (link,) = json.loads(shown.stdout)
    frame = Ether(dst=link["address"]) / IP(src=OUTSIDE.v4, dst="127.0.0.1") / UDP(sport=5000, dport=9099) / b"hello"
    with network.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as neighbour:
        neighbour.bind((world_with_rules.node.name, 0))
        neighbour.send(bytes(frame))
        with pytest.raises(TimeoutError):
            daemon.recv(100)
        subprocess.run(["nsenter", f"--net={node.path}", "iptables", "-F", "KUBE-FIREWALL"], check=True)
        neighbour.send(bytes(frame))
        assert daemon.recv(100) == b"hello"
    daemon.close()
