"""A cluster that outgrows every map: larger ones take their place while connections are opened and go on."""

from pathlib import Path

import pytest

from kbpf.datapath.ebpf.layout import ALL_MAPS
from kbpf.datapath.ebpf.maps import pinned_info
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.sizes import GROWING
from kbpf.model.objects import EndpointSlice, Service
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CALLER, OUTSIDE = "pod 10.42.1.100", "outside"
PODS = ("10.42.1.10", "10.42.1.11")
TINY = {
    "frontends": 16,
    "services": 8,
    "slots": 24,
    "membership": 24,
    "backends": 12,
    "source_ranges": 8,
    "local_addr": 32,
}
FLAGS = [f"{spec.size_flag}={TINY[spec.name]}" for spec in ALL_MAPS if spec.name in TINY]
BOTH = (slice_port(8080), slice_port(8080, "u", "UDP"))


def first_services() -> list[Service | EndpointSlice]:
    web = service("web", port(80), port(80, "u", "UDP"), type="LoadBalancer", external_ips=["203.0.113.10"])
    affine = service("affine", port(80), cluster_ips=["10.96.0.20"], session_affinity="ClientIP")
    return [web, endpoint_slice("web", *PODS, ports=BOTH), affine, endpoint_slice("affine", *PODS)]


def further_services(count: int) -> list[Service | EndpointSlice]:
    """Each has endpoints of its own and ranges of its own."""
    objects: list[Service | EndpointSlice] = []
    for number in range(count):
        name = f"more{number}"
        address = f"{number // 200}.{number % 200 + 1}"
        objects += [
            service(
                name,
                cluster_ips=[f"10.96.{10 + number // 200}.{number % 200 + 1}"],
                type="LoadBalancer",
                ingress=[f"203.0.114.{number % 250 + 1}"] if number < 250 else [],
                load_balancer_source_ranges=[f"198.51.{address.split('.')[0]}.{number % 200 + 1}/32"],
            ),
            endpoint_slice(name, PODS[number % 2], f"10.42.{100 + number // 200}.{number % 200 + 1}"),
        ]
    return objects


def sizes(pins: Pins) -> dict[str, int]:
    found = {name: pinned_info(pins.map(name)) for name in TINY}
    return {name: info.max_entries for name, info in found.items() if info}


def is_outgrown(pins: Pins) -> bool:
    """All are larger, and the programs in force use them."""
    found = sizes(pins)
    return all(found.get(name, 0) > tiny for name, tiny in TINY.items()) and not any(pins.outgrown_maps.iterdir())


def test_every_map_is_outgrown_and_nothing_is_lost(world: World, tmp_path: Path):
    assert TINY.keys() == GROWING
    world.serve(*(f"{pod}:8080{protocol}" for pod in PODS for protocol in ("", "/udp")))
    directory = write_manifests(tmp_path / "manifests", *first_services())
    first = world.proxy(directory, "--datapath=ebpf", "--fallback=none", *FLAGS)
    first.terminate()
    proxy = world.proxy(directory, "--datapath=ebpf", "--fallback=none")
    pins = Pins(world.node.bpffs)
    assert sizes(pins) == TINY, "a larger size is no reason to make a map anew"

    opened = [
        world.sessions(origin, to, count=5)
        for origin, to in (
            (CALLER, "10.96.0.10:80"),
            (CALLER, "10.96.0.10:80/udp"),
            (OUTSIDE, "203.0.113.10:80"),
            (OUTSIDE, "203.0.113.10:80/udp"),
        )
    ]
    answered = [backends(sessions.ping()) for sessions in opened]
    [affine] = backends(world.send(CALLER, "10.96.0.20:80", count=3))
    streams = [world.stream(*each, pause_s=0.01) for each in ((CALLER, "10.96.0.10:80"), (OUTSIDE, "203.0.113.10:80"))]
    connections = pinned_info(pins.map("connections"))

    syncs = len(proxy.syncs())
    world.node.namespace.ip(*(f"addr add 192.0.2.{number}/32 dev lo" for number in range(1, 60)))
    write_manifests(tmp_path / "manifests", *first_services(), *further_services(400))
    proxy.wait_for_sync(syncs, timeout_s=60)
    eventually(lambda: is_outgrown(pins), timeout_s=60)

    assert [backends(sessions.ping()) for sessions in opened] == answered
    assert backends(world.send(CALLER, "10.96.0.20:80", count=20)) == {affine}
    assert backends(world.send(CALLER, "10.96.11.200:80", count=5, timeout_s=0.2)) <= {f"{PODS[1]}:8080", None}
    for stream in streams:
        report = stream.wait_for(20, timeout_s=30)
        assert (report.failed, report.failures) == (0, [])
    assert pinned_info(pins.map("connections")) == connections, "what sockets and flows remember is not replaced"
    log = proxy.log.read_text()
    assert "maps grow" in log
    assert "does not fit" not in log
    assert "spilled" not in log
