"""What the configuration means on a node with these addresses."""

import pytest

from kbpf.config import Config
from kbpf.model.address import Address, Family
from kbpf.node_settings import iptables_settings

LOCAL = frozenset(map(Address, ("127.0.0.1", "192.168.60.11", "10.42.1.1", "::1", "fd60::11")))


def unasked() -> frozenset[Address]:
    raise AssertionError("the addresses of the node were listed")


def test_a_node_whose_node_ports_are_open_everywhere_is_not_asked_for_its_addresses():
    assert iptables_settings(Config(), None, unasked).node_port_addresses == {}


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (("192.168.60.0/24",), {Family.IPV4: ("192.168.60.11",)}),
        (("192.168.60.0/24", "fd60::/64"), {Family.IPV4: ("192.168.60.11",), Family.IPV6: ("fd60::11",)}),
        (("10.0.0.0/8", "127.0.0.0/8", "::/0"), {Family.IPV4: ("10.42.1.1", "127.0.0.1")}),
    ],
)
def test_restricted_node_ports_are_open_on_the_local_addresses_inside_the_ranges(ranges, expected):
    settings = iptables_settings(Config(node_port_addresses=ranges), None, lambda: LOCAL)
    assert settings.node_port_addresses == expected
