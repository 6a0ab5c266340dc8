"""Connected UDP sockets, which eBPF translates once: when their endpoint leaves they are ended, and no others are."""

from pathlib import Path

import pytest

from kbpf.demo.client import Sessions
from kbpf.demo.proxy import Proxy
from tests.builders import draining, endpoint, endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CLUSTER_IP, CLUSTER_IP6 = "10.96.0.10:53/udp", "[fd96::10]:53/udp"
POD, OTHER, POD6, OTHER6 = "10.42.1.10", "10.42.1.11", "fd42:1::10", "fd42:1::11"
PORTS = (slice_port(5353, "d", "UDP"),)
DNS = service("dns", port(53, "d", "UDP"), cluster_ips=["10.96.0.10", "fd96::10"])
CLIENT = ("10.42.1.100", "fd42:1::100")
ENDED = {"ECONNABORTED", "EDESTADDRREQ"}


def manifests(directory: Path, *endpoints: object, with_service: bool = True) -> Path:
    v6 = [str(each).replace("10.42.1.", "fd42:1::") for each in endpoints if isinstance(each, str)]
    slices = [endpoint_slice("dns", *endpoints, ports=PORTS), endpoint_slice("dns", *v6, ports=PORTS, family="IPv6")]
    return write_manifests(directory, *([DNS] if with_service else []), *slices)


@pytest.fixture
def proxy(world: World, tmp_path: Path) -> Proxy:
    world.pod(*CLIENT)
    world.pod(POD, POD6)
    world.pod(OTHER, OTHER6)
    world.serve(*(f"{pod}:5353/udp" for pod in (POD, OTHER, f"[{POD6}]", f"[{OTHER6}]")))
    return world.proxy(manifests(tmp_path / "manifests", POD), "--datapath=ebpf", "--fallback=none")


def is_ended(sessions: Sessions) -> bool:
    return {answer.error for answer in sessions.ping()} <= ENDED


def test_sockets_of_an_endpoint_that_left_are_ended_and_those_that_addressed_the_pod_itself_live_on(
    world: World, tmp_path: Path, proxy: Proxy
):
    origins = (f"pod {CLIENT[0]}", "pod 10.42.1.101", "host")
    old = [world.sessions(origin, CLUSTER_IP, count=2) for origin in origins]
    old.append(world.sessions(f"pod {CLIENT[0]}", CLUSTER_IP, mapped=True))
    old6 = world.sessions(f"pod {CLIENT[0]}", CLUSTER_IP6)
    direct = [world.sessions(origin, f"{POD}:5353/udp", count=2) for origin in origins]
    direct6 = world.sessions(f"pod {CLIENT[0]}", f"[{POD6}]:5353/udp")
    manifests(tmp_path / "manifests", POD, OTHER)
    eventually(lambda: f"{OTHER}:5353" in backends(world.send(f"pod {CLIENT[0]}", CLUSTER_IP, count=20)))
    for sessions in (*old, old6):
        assert None not in backends(sessions.ping()), "who comes disturbs nobody"
    manifests(tmp_path / "manifests", OTHER)
    for sessions in (*old, old6):
        eventually(lambda sessions=sessions: is_ended(sessions))
    for sessions in direct:
        assert backends(sessions.ping()) == {f"{POD}:5353"}
    assert backends(direct6.ping()) == {f"[{POD6}]:5353"}
    for origin in origins:
        assert backends(world.sessions(origin, CLUSTER_IP, count=5).ping()) == {f"{OTHER}:5353"}
    eventually(lambda: "ended 8 connected UDP sockets" in proxy.log.read_text())


@pytest.mark.parametrize(("with_service", "error"), [(True, "ECONNREFUSED"), (False, None)])
def test_with_the_last_endpoint_or_the_service_its_sockets_go(
    world: World, tmp_path: Path, proxy: Proxy, with_service: bool, error: str | None
):
    old = world.sessions(f"pod {CLIENT[0]}", CLUSTER_IP, count=2)
    assert backends(old.ping()) == {f"{POD}:5353"}
    manifests(tmp_path / "manifests", with_service=with_service)
    eventually(lambda: is_ended(old))
    assert {each.error for each in world.sessions(f"pod {CLIENT[0]}", CLUSTER_IP).opened} == {error}


def test_an_endpoint_that_left_while_nobody_was_looking_is_found_at_the_start(
    world: World, tmp_path: Path, proxy: Proxy
):
    old = world.sessions(f"pod {CLIENT[0]}", CLUSTER_IP, count=2)
    assert backends(old.ping()) == {f"{POD}:5353"}
    proxy.kill()
    manifests(tmp_path / "manifests", OTHER)
    assert backends(old.ping()) == {f"{POD}:5353"}
    proxy.start()
    proxy.wait_until_healthy()
    eventually(lambda: is_ended(old))


def test_an_endpoint_that_still_serves_while_it_ends_keeps_its_sockets(world: World, tmp_path: Path, proxy: Proxy):
    old = world.sessions(f"pod {CLIENT[0]}", CLUSTER_IP, count=2)
    syncs = len(proxy.syncs())
    manifests(tmp_path / "manifests", draining(POD), endpoint(OTHER))
    proxy.wait_for_sync(syncs)
    assert backends(world.send(f"pod {CLIENT[0]}", CLUSTER_IP, count=10)) == {f"{OTHER}:5353"}
    assert backends(old.ping()) == {f"{POD}:5353"}
    manifests(tmp_path / "manifests", endpoint(OTHER))
    eventually(lambda: is_ended(old))
