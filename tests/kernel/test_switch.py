"""From one datapath to the other under load: calls from everywhere, new ones all the time and long ones held."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbpf.demo.proxy import Proxy
from kbpf.host.clsact import ClsactFilters
from tests.builders import endpoint, endpoint_slice, port, service
from tests.kernel.asking import status
from tests.kernel.world import World, backends
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

HERE, AWAY = "10.42.1.10", "10.42.2.10"
CLUSTER_IP, NODE_PORT = "10.96.0.10:80", "192.168.60.11:30080"
CALLS = (("pod 10.42.1.100", CLUSTER_IP), ("host", CLUSTER_IP), ("outside", NODE_PORT))
HELD = 10


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    web = service("web", port(80, node_port=30080), type="NodePort")
    return write_manifests(tmp_path / "manifests", web, endpoint_slice("web", HERE, endpoint(AWAY, "n2")))


@contextmanager
def load(world: World) -> Iterator[None]:
    """Calls before, during and after what happens inside. None may fail, and no long one may end."""
    streams = [world.stream(origin, to, pause_s=0.002) for origin, to in CALLS]
    sessions = [world.sessions(origin, to, count=HELD) for origin, to in CALLS]
    for stream in streams:
        stream.wait_for(20)
    yield
    reports = [stream.wait_for(200, timeout_s=30) for stream in streams]
    failures = {origin: report.failures for (origin, _), report in zip(CALLS, reports, strict=True) if report.failed}
    held = {origin: [answer.error for answer in each.ping()] for (origin, _), each in zip(CALLS, sessions, strict=True)}
    assert not failures
    assert held == {origin: [None] * HELD for origin, _ in CALLS}
    for each in (*streams, *sessions):
        each.close()


def start(world: World, manifests: Path, datapath: str) -> Proxy:
    return world.proxy(manifests, f"--datapath={datapath}", "--fallback=none")


def test_filters_on_devices_go_when_their_pins_were_lost_and_iptables_takes_over(world: World, manifests: Path) -> None:
    """A file system of pins is gone after a new mount; filters hold their programs and maps by themselves."""
    world.serve(f"{HERE}:8080", f"{AWAY}:8080")
    world.proxy(manifests, "--datapath=ebpf", "--fallback=none", "--tc-attachment=clsact").terminate()
    shutil.rmtree(world.node.bpffs)
    with world.node.namespace.entered():
        assert len(ClsactFilters().found()) == 2
    start(world, manifests, "iptables")
    with world.node.namespace.entered():
        assert ClsactFilters().found() == []
    found = backends(world.send("outside", NODE_PORT, count=40))
    assert found == {f"{HERE}:8080", f"{AWAY}:8080"}


def test_no_connection_is_lost_when_the_datapath_changes(world: World, manifests: Path) -> None:
    world.serve(f"{HERE}:8080", f"{AWAY}:8080")
    proxy = start(world, manifests, "iptables")
    for datapath in ("ebpf", "iptables", "ebpf"):
        with load(world):
            proxy.terminate()
            proxy = start(world, manifests, datapath)
            assert status(world)["datapath"] == datapath
