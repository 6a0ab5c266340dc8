"""Starts in a cluster of five thousand Services: every one is there within seconds, in the source and in the kernel."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.clock import SystemClock
from kbpf.demo.proxy import Proxy
from kbpf.model.events import Kind
from kbpf.source.api.access import Access
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.objects import endpoint_slice, node, service
from tests.kernel.world import World, backends
from tests.mirror import Mirror, eventually

pytestmark = [pytest.mark.root, pytest.mark.cluster]

SERVICES = 5000
PODS = ("10.42.1.10", "10.42.1.11")
START_WITHIN_S = 60
OPTIONS = ("--fallback=none", "--conntrack-max-per-core=0", "--oom-score-adj=0")


@pytest.fixture(scope="module")
def last(control_plane: ControlPlane) -> str:
    """The ClusterIP of the last Service."""
    api = control_plane.api
    api.put([node("n1", "192.168.60.11")])
    names = [f"s{number}" for number in range(SERVICES)]
    answers = api.put(service(name, namespace="large") for name in names)
    api.put(endpoint_slice(name, *PODS, namespace="large") for name in names)
    return str(answers[-1]["spec"]["clusterIP"])


@pytest.fixture
def kubeconfig(world: World, control_plane: ControlPlane) -> Iterator[Path]:
    relay = Relay(world.node.namespace, control_plane.port)
    yield control_plane.kubeconfig(relay.port)
    relay.stop()


def test_the_source_has_them_all(control_plane: ControlPlane, last: str) -> None:
    started = time.monotonic()
    seen = Mirror(Access(control_plane.kubeconfig(), "", SystemClock()), dict).start()
    eventually(lambda: len(seen.synced) == len(Kind), timeout_s=30)
    assert time.monotonic() - started < 20
    seen.stop()
    assert len(seen.held["Service"]) == SERVICES + 1  # and the API server's own
    assert len(seen.held["EndpointSlice"]) == SERVICES


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_a_daemon_serves_the_last_one_and_its_successor_writes_nothing(
    world: World, kubeconfig: Path, last: str, datapath: str
) -> None:
    world.serve(*(f"{pod}:8080" for pod in PODS))
    options = (f"--kubeconfig={kubeconfig}", f"--datapath={datapath}", *OPTIONS)
    proxy = Proxy(world.node, None, world.directory / "log", "--cluster-cidr=10.42.0.0/16,fd42::/16", *options)
    try:
        for _ in range(2):
            proxy.start()
            proxy.wait_until_healthy(START_WITHIN_S)
            assert backends(world.send("pod 10.42.1.100", f"{last}:80", count=40)) == {f"{pod}:8080" for pod in PODS}
            assert proxy.terminate() == 0
        first, *_, again = proxy.syncs()
        assert (first > SERVICES, again) == (True, 0)
    finally:
        proxy.terminate()
        proxy.cleanup()
