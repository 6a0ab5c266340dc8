"""Somebody removes what eBPF needs under a running kbpf. The next change of a Service repairs it, still by eBPF.

What is altered inside the maps is found without a change, by the look of each sync period.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.model.address import Address, packed
from tests.builders import endpoint_slice, port, service
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CALLER, OUTSIDE = "pod 10.42.1.100", "outside"
PODS = ("10.42.1.10", "10.42.1.11")

TAKEN: dict[str, Callable[[Pins], None]] = {
    "everything": lambda pins: shutil.rmtree(pins.root),
    "all attachments": lambda pins: shutil.rmtree(pins.links),
    "one attachment": lambda pins: pins.link("connect4").unlink(),
    "all programs": lambda pins: shutil.rmtree(pins.programs),
    "all maps": lambda pins: shutil.rmtree(pins.maps),
    "one map": lambda pins: pins.map("services").unlink(),
}


def manifests(directory: Path, *pods: str) -> Path:
    web = service("web", port(80), type="LoadBalancer", external_ips=["203.0.113.10"])
    return write_manifests(directory, web, endpoint_slice("web", *pods))


def test_the_next_change_is_served_through_ebpf_again(world: World, tmp_path: Path):
    """What is established goes on: the maps with its flows are not lost with their names."""
    world.serve(*(f"{pod}:8080" for pod in PODS))
    proxy = world.proxy(manifests(tmp_path / "manifests", PODS[0]), "--datapath=ebpf")
    stay = [world.sessions(*each, count=3) for each in ((CALLER, "10.96.0.10:80"), (OUTSIDE, "203.0.113.10:80"))]
    for number, (what, take) in enumerate(TAKEN.items(), start=1):
        pod, syncs = PODS[number % 2], len(proxy.syncs())
        take(Pins(world.node.bpffs))
        manifests(tmp_path / "manifests", pod)
        proxy.wait_for_sync(syncs)
        for origin, to in ((CALLER, "10.96.0.10:80"), (OUTSIDE, "203.0.113.10:80")):
            assert backends(world.send(origin, to, count=20)) == {f"{pod}:8080"}, what
        for sessions in stay:
            assert backends(sessions.ping()) == {f"{PODS[0]}:8080"}, what
    assert "via iptables" not in proxy.log.read_text()


def delete_entries(maps: Maps) -> None:
    maps.frontends.delete(maps.frontends.entries())


def alter_entries(maps: Maps) -> None:
    rows = {key: row._replace(address=packed(Address("10.42.1.99"))) for key, row in maps.backends.entries().items()}
    maps.backends.update(rows)


def add_entries(maps: Maps) -> None:
    rows = maps.frontends.entries()
    maps.frontends.update({key._replace(port=81): row._replace(port=81) for key, row in rows.items()})


@pytest.mark.parametrize(
    ("alter", "name"), [(delete_entries, "frontends"), (alter_entries, "backends"), (add_entries, "frontends")]
)
def test_altered_entries_are_as_they_were_after_a_sync_period(
    world: World, tmp_path: Path, alter: Callable[[Maps], None], name: str
):
    world.serve(*(f"{pod}:8080" for pod in PODS))
    folder = manifests(tmp_path / "manifests", *PODS)
    proxy = world.proxy(folder, "--datapath=ebpf", "--iptables-sync-period=1s", "--iptables-min-sync-period=0s")
    maps = Maps.open(Pins(world.node.bpffs))
    try:
        frontends = maps.frontends.entries().keys()
        alter(maps)
        eventually(lambda: f"another program took away: entries of {name}; it is back" in proxy.log.read_text())
        assert maps.frontends.entries().keys() == frontends
    finally:
        maps.close()
    assert backends(world.send(CALLER, "10.96.0.10:80", count=20)) == {f"{pod}:8080" for pod in PODS}
