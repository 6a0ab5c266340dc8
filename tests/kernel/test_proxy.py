"""kbpf as an operator runs it: a process on a node, manifests in a directory, signals, and traffic that must go on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kbpf.demo.proxy import Proxy
from kbpf.model.objects import EndpointSlice, Service
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.traces import traces
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CALLER = "pod 10.42.1.100"
WEB, DNS = "10.96.0.10:80", "10.96.0.53:53/udp"
PODS = ("10.42.1.10", "10.42.1.11", "10.42.2.10")
WEB_BACKENDS = {f"{pod}:8080" for pod in PODS}
DNS_BACKENDS = {f"{pod}:5353" for pod in PODS}

Start = Callable[..., Proxy]


def web(*pods: str) -> list[Service | EndpointSlice]:
    return [service("web", port(80)), endpoint_slice("web", *pods)]


def dns(*pods: str) -> list[Service | EndpointSlice]:
    return [
        service("dns", port(53, protocol="UDP"), cluster_ips=["10.96.0.53"]),
        endpoint_slice("dns", *pods, ports=[slice_port(5353, protocol="UDP")]),
    ]


@pytest.fixture(params=["ebpf", "iptables"])
def datapath(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(tmp_path / "manifests", *web(*PODS), *dns(*PODS))


@pytest.fixture
def proxy(world: World, manifests: Path, datapath: str) -> Proxy:
    """A healthy kbpf with two Services of three pods each, which answer."""
    world.serve(*WEB_BACKENDS, *(f"{backend}/udp" for backend in DNS_BACKENDS))
    return world.proxy(manifests, f"--datapath={datapath}", "--fallback=none")


def test_requests_reach_every_backend(world: World, proxy: Proxy) -> None:
    for origin in (CALLER, "host"):
        assert backends(world.send(origin, WEB, count=60)) == WEB_BACKENDS
        assert backends(world.send(origin, DNS, count=60)) == DNS_BACKENDS


def test_a_killed_proxy_fails_no_connection_and_neither_does_its_successor(world: World, proxy: Proxy) -> None:
    stream = world.stream(CALLER, WEB)
    stream.wait_for(50)
    proxy.kill()
    stream.wait_for(100)
    proxy.start()
    proxy.wait_until_healthy()
    report = stream.wait_for(100)
    assert (report.failed, report.failures) == (0, [])
    assert set(report.backends) == WEB_BACKENDS


def test_a_restart_writes_nothing_when_nothing_changed(proxy: Proxy) -> None:
    assert proxy.syncs()[0] > 0
    before = len(proxy.syncs())
    proxy.kill()
    proxy.start()
    proxy.wait_until_healthy()
    assert proxy.syncs()[before:] == [0]


def test_sigterm_leaves_traffic_flowing_and_cleanup_ends_it(world: World, proxy: Proxy) -> None:
    assert proxy.terminate() == 0
    assert backends(world.send(CALLER, WEB, count=60)) == WEB_BACKENDS
    proxy.cleanup()
    assert backends(world.send(CALLER, WEB, timeout_s=0.2)) == {None}
    assert traces(world.node) == []
    proxy.cleanup()


def test_changes_of_a_manifest_lose_no_connection(world: World, proxy: Proxy, manifests: Path) -> None:
    stream = world.stream(CALLER, WEB)
    stream.wait_for(50)
    syncs = len(proxy.syncs())
    write_manifests(manifests, *web(*PODS[:2]), *dns(*PODS))
    proxy.wait_for_sync(syncs)
    before, after = stream.wait_for(1), stream.wait_for(100)
    assert (after.failed, after.failures) == (0, [])
    assert before.backends["10.42.2.10:8080"] == after.backends["10.42.2.10:8080"]


def test_a_deleted_service_is_gone_and_the_others_stay(world: World, proxy: Proxy, manifests: Path) -> None:
    write_manifests(manifests, *dns(*PODS))
    eventually(lambda: backends(world.send(CALLER, WEB, timeout_s=0.1)) == {None})
    assert backends(world.send(CALLER, DNS, count=60)) == DNS_BACKENDS


def test_two_nodes_with_different_manifests_and_datapaths_do_not_disturb_each_other(
    world: World, tmp_path: Path
) -> None:
    other = World(f"{world.tag}b", tmp_path)
    try:
        other.create()
        for each, pod, datapath in ((world, PODS[0], "ebpf"), (other, PODS[1], "iptables")):
            each.serve(*(f"{pod}:8080" for pod in PODS[:2]))
            directory = write_manifests(tmp_path / datapath, *web(pod))
            each.proxy(directory, f"--datapath={datapath}", "--fallback=none")
        assert backends(world.send(CALLER, WEB, count=20)) == {"10.42.1.10:8080"}
        assert backends(other.send(CALLER, WEB, count=20)) == {"10.42.1.11:8080"}
    finally:
        other.close()
    assert backends(world.send(CALLER, WEB, count=20)) == {"10.42.1.10:8080"}
