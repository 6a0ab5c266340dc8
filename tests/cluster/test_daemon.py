"""kbpf on a node, fed by the real API server: what is written there is where connections go, with either datapath."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.demo.proxy import Proxy
from tests.cluster.api import Key
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.objects import endpoint_slice, node, service
from tests.kernel.world import World, backends, eventually

pytestmark = [pytest.mark.root, pytest.mark.cluster]

CALLER, WEB = "pod 10.42.1.100", "10.96.0.80:80"
PODS = ("10.42.1.10", "10.42.1.11", "10.42.2.10")
OWN_NODE = node("n1", "192.168.60.11")


def at_port(*pods: str) -> set[str]:
    return {f"{pod}:8080" for pod in pods}


@pytest.fixture(params=["ebpf", "iptables"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return (f"--datapath={request.param}", "--fallback=none", "--conntrack-max-per-core=0", "--oom-score-adj=0")


@pytest.fixture
def kubeconfig(world: World, control_plane: ControlPlane) -> Iterator[Path]:
    """The way of a process in the node's namespace to the API server, and what it finds there."""
    relay = Relay(world.node.namespace, control_plane.port)
    control_plane.api.put([OWN_NODE, service("web", clusterIP="10.96.0.80"), endpoint_slice("web", *PODS)])
    yield control_plane.kubeconfig(relay.port)
    control_plane.api.delete([Key("Service", "shop", "web"), Key("EndpointSlice", "shop", "web-1")])
    relay.stop()


@pytest.fixture
def proxy(world: World, kubeconfig: Path, options: tuple[str, ...]) -> Proxy:
    world.serve(*at_port(*PODS))
    return world.proxy(None, f"--kubeconfig={kubeconfig}", *options)


def reached(world: World) -> set[str | None]:
    return backends(world.send(CALLER, WEB, count=40))


def test_connections_go_where_the_api_server_says_also_while_it_is_away(
    world: World, control_plane: ControlPlane, proxy: Proxy
) -> None:
    assert reached(world) == at_port(*PODS)
    control_plane.api.put([endpoint_slice("web", *PODS[1:])])
    eventually(lambda: reached(world) == at_port(*PODS[1:]))
    control_plane.kill_api_server()
    assert reached(world) == at_port(*PODS[1:])
    control_plane.start_api_server()
    control_plane.api.put([endpoint_slice("web", PODS[0])])
    eventually(lambda: reached(world) == at_port(PODS[0]), timeout_s=60)


def test_a_start_is_an_event_on_the_node(control_plane: ControlPlane, proxy: Proxy) -> None:
    def starts() -> list[str]:
        events = control_plane.api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [event["regarding"]["name"] for event in events if event["reason"] == "Starting"]

    eventually(lambda: "n1" in starts(), timeout_s=30)


def test_a_start_while_the_api_server_is_away_leaves_everything_in_force(
    world: World, control_plane: ControlPlane, proxy: Proxy
) -> None:
    stream = world.stream(CALLER, WEB)
    assert proxy.terminate() == 0
    control_plane.kill_api_server()
    proxy.start()
    eventually(lambda: "Connection refused" in proxy.log.read_text() or "connection broke" in proxy.log.read_text())
    time.sleep(1)
    control_plane.start_api_server()
    proxy.wait_until_healthy(60)
    report = stream.wait_for(100)
    assert (report.failed, report.failures) == (0, [])


def test_a_change_of_the_own_node_ends_the_process_and_nothing_else(
    world: World, control_plane: ControlPlane, kubeconfig: Path, options: tuple[str, ...]
) -> None:
    world.serve(*at_port(*PODS))
    proxy = Proxy(world.node, None, world.directory / "log", f"--kubeconfig={kubeconfig}", *options)
    proxy.start()
    try:
        proxy.wait_until_healthy()
        control_plane.api.put([node("n1", "192.168.60.21")])
        assert proxy.wait_until_ended() == 1
        assert "addresses of Node n1 changed from 192.168.60.11 to 192.168.60.21" in proxy.last_words()
        assert reached(world) == at_port(*PODS)
    finally:
        proxy.terminate()
        proxy.cleanup()
