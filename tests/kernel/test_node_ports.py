"""A node port is rules or map entries, never a socket of kbpf's: what others listen on beside it does not matter."""

import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

POD, POD6 = "10.42.1.176", "fd42:1::176"
TAKEN, ONLY_IPV6 = 30501, 30502


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_a_port_that_somebody_listens_on_is_served_and_kbpf_listens_on_none(
    world: World, tmp_path: Path, datapath: str
) -> None:
    """The other family's Service on the next number neither: one socket for both was what kept Services out."""
    manifests = write_manifests(
        tmp_path / "manifests",
        service("taken", port(80, node_port=TAKEN), type="NodePort", cluster_ips=["10.96.5.5"]),
        endpoint_slice("taken", POD),
        service("only6", port(53, protocol="UDP", node_port=ONLY_IPV6), type="NodePort", cluster_ips=["fd96::506"]),
        endpoint_slice("only6", POD6, ports=[slice_port(5353, protocol="UDP")], family="IPv6"),
    )
    for pair in ((POD, POD6), ("10.42.1.100", "fd42:1::100")):
        world.pod(*pair)
    world.serve(f"{POD}:8080", f"[{POD6}]:5353/udp")
    with world.node.namespace.entered(), closing(socket.create_server(("", TAKEN))):
        world.proxy(manifests, f"--datapath={datapath}", "--fallback=none")
        for origin in ("outside", "pod 10.42.1.100"):
            assert backends(world.send(origin, f"192.168.60.11:{TAKEN}", count=5)) == {f"{POD}:8080"}
            assert backends(world.send(origin, f"[fd60::11]:{ONLY_IPV6}/udp", count=5)) == {f"[{POD6}]:5353"}
        assert listening(world, TAKEN) == 1
        assert listening(world, ONLY_IPV6) == 0


def listening(world: World, number: int) -> int:
    """Sockets of any kind that are bound to this port on the node."""
    command = ["ss", "-Hantu", "state", "unconnected", "state", "listening", f"sport = {number}"]
    done = subprocess.run(
        ["nsenter", f"--net={world.node.namespace.path}", *command], capture_output=True, text=True, check=True
    )
    return len(done.stdout.splitlines())
