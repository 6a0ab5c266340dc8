"""Packet programs on devices: attached, replaced, moved, and gone with their device."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import loader, source, uplinks
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.demo.namespaces import Namespace
from kbpf.host.devices import first_addresses
from kbpf.host.devices import uplinks as find_uplinks
from kbpf.model.address import Address
from kbpf.model.device import Device
from tests.conftest import RUN

pytestmark = pytest.mark.root


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
def own_pins(root: Path, programs: Path) -> Iterator[Pins]:
    """Links of this test alone."""
    pins = Pins(root.with_name(f"{root.name}-uplinks"))
    pins.make_folders()
    yield pins
    uplinks.attach(pins, programs, ())
    remove(pins.root)


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


def test_the_first_addresses_of_uplinks(devices: tuple[Device, ...]) -> None:
    assert first_addresses(devices) == {"192.0.2.1", "2001:db8::1"}


def test_what_is_attached_stays_and_what_is_not_wanted_goes(
    own_pins: Pins, programs: Path, devices: tuple[Device, ...]
) -> None:
    assert uplinks.attach(own_pins, programs, devices) == 4
    assert uplinks.attach(own_pins, programs, devices) == 0
    assert uplinks.is_attached(own_pins, programs, devices)
    assert uplinks.attach(own_pins, programs, devices[:1]) == 2
    assert not uplinks.is_attached(own_pins, programs, devices)
    assert len(list(own_pins.links.iterdir())) == 2


def test_other_programs_take_the_place_of_the_old_ones(
    own_pins: Pins, programs: Path, devices: tuple[Device, ...], root: Path
) -> None:
    uplinks.attach(own_pins, programs, devices)
    build = source.describe(own_pins, {}, has_set_retval=True, has_packet_path=True)
    others = loader.ensure_loaded(own_pins, build).programs
    assert not uplinks.is_attached(own_pins, others, devices)
    assert uplinks.attach(own_pins, others, devices) == 4
    assert uplinks.is_attached(own_pins, others, devices)


def test_a_link_ends_with_its_device_and_a_new_device_gets_a_new_one(
    own_pins: Pins, programs: Path, devices: tuple[Device, ...], namespace: Namespace
) -> None:
    uplinks.attach(own_pins, programs, devices)
    namespace.ip("link del devc")
    assert not uplinks.is_attached(own_pins, programs, devices)
    left = find_uplinks([Address("192.168.60.11")])
    assert names(left) == ["devb"]
    assert uplinks.attach(own_pins, programs, left) == 2


def test_a_device_that_is_gone_fails_with_the_kernels_word(
    own_pins: Pins, programs: Path, namespace: Namespace
) -> None:
    with pytest.raises(OSError, match="No such device"):
        uplinks.attach(own_pins, programs, [Device(9999, "gone")])
