"""Local-traffic detection."""

import pytest

from kbpf.model.address import Address
from kbpf.model.detector import LocalDetector, in_cidr
from kbpf.model.flow import Origin
from tests.builders import flow


@pytest.mark.parametrize(
    ("address", "cidr", "inside"),
    [
        ("10.42.1.5", "10.42.0.0/16", True),
        ("10.43.1.5", "10.42.0.0/16", False),
        ("10.42.1.5", "0.0.0.0/0", True),
        ("10.42.1.5", "::/0", False),
        ("fd42:1::5", "fd42::/16", True),
        ("fd42:1::5", "0.0.0.0/0", False),
    ],
)
def test_families_never_contain_each_other(address: str, cidr: str, inside: bool):
    assert in_cidr(Address(address), cidr) is inside


def test_a_cidr_detector_goes_by_the_address_alone():
    detector = LocalDetector(cidr="10.42.0.0/16")
    for origin in Origin:
        assert detector.is_local(flow(origin, "10.42.2.9", "10.96.0.10"))
        assert not detector.is_local(flow(origin, "198.51.100.7", "10.96.0.10"))


def test_an_interface_detector_sees_pods_of_this_node_only():
    detector = LocalDetector(interface="veth+")
    assert {origin for origin in Origin if detector.is_local(flow(origin, "10.42.2.9", "10.96.0.10"))} == {Origin.POD}


@pytest.mark.parametrize(
    ("interface", "device", "expected"),
    [("br0", "br0", True), ("br0", "br01", False), ("veth+", "veth7", True), ("veth+", "eth0", False)],
)
def test_an_interface_detector_is_for_the_devices_that_it_names(interface: str, device: str, expected: bool):
    assert LocalDetector(interface=interface).is_for(device) is expected
    assert not LocalDetector(cidr="10.42.0.0/16").is_for(device)
