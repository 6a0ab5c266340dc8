"""Packet programs on devices: attached, replaced, moved, and gone with their device."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import loader
from kbpf.datapath.ebpf.filters import FilteredUplinks
from kbpf.datapath.ebpf.hooks import PACKET_PROGRAMS
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.probe import packet_path, way_onto_devices
from kbpf.datapath.ebpf.uplinks import PreferredUplinks, TcxLinks, Uplinks, Way
from kbpf.demo.namespaces import Namespace
from kbpf.host.clsact import ClsactFilters
from kbpf.host.devices import first_addresses
from kbpf.host.devices import uplinks as find_uplinks
from kbpf.model.address import Address
from kbpf.model.device import Device
from tests.conftest import RUN
from tests.kernel.ebpf.builds import describe

pytestmark = [pytest.mark.root, pytest.mark.kernels("ebpf")]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """With two pairs of devices; devb has the default route, devc an address of the node. The test is inside."""
    namespace = Namespace(f"{RUN}{os.environ.get('PYTEST_XDIST_WORKER', '')}-uplinks")
    namespace.create()
    try:
        namespace.ip(
            "link add deva type veth peer name devb",
            "link add devc type veth peer name devd",
            *(f"link set dev{letter} up" for letter in "abcd"),
            "addr add 192.0.2.1/24 dev devb",
            "route add default via 192.0.2.254 dev devb",
            "addr add 192.168.60.11/32 dev devc",
            "addr add 2001:db8::1/64 dev devc nodad",
        )
        with namespace.entered():
            yield namespace
    finally:
        namespace.delete()


@pytest.fixture
def devices(namespace: Namespace) -> tuple[Device, ...]:
    return find_uplinks([Address("192.168.60.11")])


@pytest.fixture
def own_pins(root: Path) -> Iterator[Pins]:
    """Links of this test alone."""
    pins = Pins(root.with_name(f"{root.name}-uplinks"))
    pins.make_folders()
    yield pins
    TcxLinks(pins).detach()
    remove(pins.root)


@pytest.fixture
def links(own_pins: Pins) -> TcxLinks:
    if way_onto_devices(packet_path(ClsactFilters(), [Way.TCX])) is None:
        pytest.skip("this kernel has no TCX links")
    return TcxLinks(own_pins)


@pytest.fixture
def filters(own_pins: Pins) -> FilteredUplinks:
    return FilteredUplinks(ClsactFilters(), own_pins.root)


@pytest.fixture(params=Way)
def uplinks(request: pytest.FixtureRequest) -> Uplinks:
    chosen: Uplinks = request.getfixturevalue("links" if request.param is Way.TCX else "filters")
    return chosen


def names(devices: tuple[Device, ...]) -> list[str]:
    return sorted(device.name for device in devices)


def test_uplinks_hold_the_default_route_or_an_address_of_the_node_or_are_named(namespace: Namespace) -> None:
    assert names(find_uplinks([])) == ["devb"]
    assert names(find_uplinks([Address("192.168.60.11")])) == ["devb", "devc"]
    assert names(find_uplinks([], ["dev[ad]"])) == ["deva", "devb", "devd"]
    assert names(find_uplinks([Address("127.0.0.1")], ["lo"])) == ["devb"]


def test_every_way_out_of_a_default_route_counts(namespace: Namespace) -> None:
    namespace.ip("route replace default nexthop dev devb nexthop dev devd")
    assert names(find_uplinks([])) == ["devb", "devd"]


def test_what_a_device_is_like(namespace: Namespace) -> None:
    namespace.ip("link add bridge.1 type bridge", "tuntap add dev tun1 mode tun")
    # Modules for tunnels bring devices of their own into every namespace.
    found = {device.name: device for device in find_uplinks([], ["dev?", "bridge.1", "tun1"])}
    assert len(found) == 6
    assert {name for name, device in found.items() if device.is_bridge} == {"bridge.1"}
    assert {name for name, device in found.items() if not device.has_ethernet_header} == {"tun1"}


def test_the_first_addresses_of_uplinks(devices: tuple[Device, ...]) -> None:
    assert first_addresses(devices) == {"192.0.2.1", "2001:db8::1"}


def test_what_is_attached_stays_and_what_is_not_wanted_goes(
    uplinks: Uplinks, programs: Path, devices: tuple[Device, ...]
) -> None:
    assert uplinks.attach(programs, devices) == 4
    assert uplinks.attach(programs, devices) == 0
    assert uplinks.is_attached(programs, devices)
    assert uplinks.attach(programs, devices[:1]) == 2
    assert not uplinks.is_attached(programs, devices)
    assert uplinks.is_attached(programs, devices[:1])
    assert uplinks.detach() == 2


@pytest.fixture(scope="module")
def others(root: Path) -> Iterator[Path]:
    """Other programs than those that all tests share."""
    pins = Pins(root.with_name(f"{root.name}-others"))
    build = describe(pins, {}, packet_programs=PACKET_PROGRAMS)
    yield loader.ensure_loaded(pins, build).programs
    remove(pins.root)


def test_other_programs_take_the_place_of_the_old_ones(
    uplinks: Uplinks, others: Path, programs: Path, devices: tuple[Device, ...]
) -> None:
    uplinks.attach(programs, devices)
    assert not uplinks.is_attached(others, devices)
    assert uplinks.attach(others, devices) == 4
    assert uplinks.is_attached(others, devices)


def test_programs_go_with_their_device(
    uplinks: Uplinks, programs: Path, devices: tuple[Device, ...], namespace: Namespace
) -> None:
    uplinks.attach(programs, devices)
    namespace.ip("link del devc")
    assert not uplinks.is_attached(programs, devices)
    left = find_uplinks([Address("192.168.60.11")])
    assert names(left) == ["devb"]
    assert uplinks.attach(programs, left) in (0, 2)  # the pins of dead links go
    assert uplinks.is_attached(programs, left)


def test_a_device_that_is_gone_fails_with_the_kernels_word(
    uplinks: Uplinks, programs: Path, namespace: Namespace
) -> None:
    with pytest.raises(OSError, match="No such device"):
        uplinks.attach(programs, [Device(9999, "gone")])


def test_one_way_takes_over_from_the_other(
    links: TcxLinks, filters: FilteredUplinks, programs: Path, devices: tuple[Device, ...]
) -> None:
    for preferred, other in ((links, filters), (filters, links), (links, filters)):
        both = PreferredUplinks(preferred, other)
        both.attach(programs, devices)
        assert preferred.is_attached(programs, devices)
        assert not other.is_attached(programs, devices)
    assert PreferredUplinks(filters, links).detach() == 4


def test_filters_of_others_are_never_touched(
    filters: FilteredUplinks, programs: Path, devices: tuple[Device, ...], own_pins: Pins
) -> None:
    tc("qdisc add dev devb clsact")
    for side, priority in (("ingress", 1), ("egress", 50000)):
        tc(f"filter add dev devb {side} prio {priority} handle 7 bpf direct-action bytecode", "1,6 0 0 4294967295")
    before = [tc(f"filter show dev devb {side}") for side in ("ingress", "egress")]
    filters.attach(programs, devices)
    another = FilteredUplinks(ClsactFilters(), own_pins.root / "another")
    with pytest.raises(FileExistsError, match=str(own_pins.root)):
        another.attach(programs, devices)
    assert another.detach() == 0
    assert filters.is_attached(programs, devices)
    filters.detach()
    assert [tc(f"filter show dev devb {side}") for side in ("ingress", "egress")] == before
    assert "clsact" in tc("qdisc show dev devb")
    assert "clsact" not in tc("qdisc show dev devc")


def test_a_qdisc_in_the_way_is_named(filters: FilteredUplinks, programs: Path, devices: tuple[Device, ...]) -> None:
    tc("qdisc add dev devb ingress")
    with pytest.raises(FileExistsError, match="queueing discipline of another kind"):
        filters.attach(programs, devices)


def tc(command: str, *more: str) -> str:
    return subprocess.run(["tc", *command.split(), *more], capture_output=True, text=True, check=True).stdout
