"""--socket-lb-scope=host: a mesh's redirect in a pod sees the Service's address, and rules serve all other pods."""

import subprocess
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import Reason
from kbpf.demo.echo import EchoServer, Listener
from tests.builders import endpoint, endpoint_slice, port, service
from tests.kernel.world import World, backends
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

HERE, AWAY = "10.42.1.10", "10.42.2.10"
MESHED, PLAIN = "10.42.1.100", "10.42.1.101"
SIDECAR = "127.0.0.1:15001"


@pytest.mark.parametrize("scope", ["host", "all"])
def test_who_sees_the_address_that_a_pod_calls(world: World, tmp_path: Path, scope: str) -> None:
    manifests = write_manifests(
        tmp_path / "manifests",
        service("web", port(80, node_port=30080), type="NodePort"),
        endpoint_slice("web", HERE, endpoint(AWAY, "n2")),
    )
    world.serve(f"{HERE}:8080", f"{AWAY}:8080")
    meshed = world.pod(MESHED)
    redirect = ["iptables", "-t", "nat", "-A", "OUTPUT", "-d", "10.96.0.0/16", "-p", "tcp"]
    redirect += ["-j", "REDIRECT", "--to-ports", "15001"]
    subprocess.run(["nsenter", f"--net={meshed.namespace.path}", *redirect], check=True)
    sidecar = EchoServer([Listener(meshed.place, "127.0.0.1", 15001)])
    try:
        world.proxy(manifests, "--datapath=ebpf", "--fallback=none", f"--socket-lb-scope={scope}")
        pods = {f"{HERE}:8080", f"{AWAY}:8080"}
        answers = world.send(f"pod {MESHED}", "10.96.0.10:80", count=20)
        assert backends(answers) == ({SIDECAR} if scope == "host" else pods)
        answers = world.send(f"pod {PLAIN}", "10.96.0.10:80", count=40)
        assert backends(answers) == pods
        assert {answer.source for answer in answers} == {PLAIN}
        for origin, frontend in (("host", "10.96.0.10:80"), ("outside", f"{world.node.addresses.v4}:30080")):
            assert backends(world.send(origin, frontend, count=40)) == pods
    finally:
        sidecar.close()
    maps = Maps.open(Pins(world.node.bpffs))
    try:
        hooks, packets = maps.stats.read(), maps.packet_stats.read()
    finally:
        maps.close()
    # The self-test's calls count, too, and each SYN that a loaded machine made its client repeat.
    assert (hooks[Reason.POD_SOCKET] >= 60) == (scope == "host")
    assert (40 if scope == "host" else 100) <= hooks[Reason.CHOSEN] < (60 if scope == "host" else 120)
    assert 40 <= packets[Reason.CHOSEN] < 60
