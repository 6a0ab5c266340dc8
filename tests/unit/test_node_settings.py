"""What the configuration means on a node with these addresses."""

import pytest

from kbpf.config import Config
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.ebpf_parts import local_flags
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


NODE4, NODE6, OTHER, LOOPBACK4, LOOPBACK6 = map(
    Address, ("192.168.60.11", "fd60::11", "172.16.0.1", "127.0.0.1", "::1")
)
ADDRESSES = frozenset({NODE4, NODE6, OTHER, LOOPBACK4, LOOPBACK6})


def open_addresses(**settings: object) -> set[Address]:
    config = Config(node_ips=(NODE4, NODE6), **settings)
    return {
        address
        for address, flag in local_flags(config, None, ADDRESSES, frozenset()).items()
        if flag & LocalFlag.NODE_PORT
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {NODE4, NODE6, OTHER, LOOPBACK4}),
        ({"localhost_node_ports": False}, {NODE4, NODE6, OTHER}),
        ({"node_port_addresses": ("primary",)}, {NODE4, NODE6}),
        ({"node_port_addresses": ("172.16.0.0/12",)}, {OTHER, NODE6}),
        ({"node_port_addresses": ("127.0.0.0/8", "172.16.0.0/12")}, {OTHER, NODE6, LOOPBACK4}),
    ],
)
def test_node_ports_are_open_where_the_rules_open_them(settings: dict[str, object], expected: set[Address]):
    assert open_addresses(**settings) == expected


def test_loopback_and_the_nodes_own_addresses_are_known_as_such():
    flags = local_flags(Config(), None, ADDRESSES, frozenset({NODE4, LOOPBACK6}))
    assert flags[LOOPBACK6] == LocalFlag.LOOPBACK
    assert flags[NODE4] == LocalFlag.NODE_PORT | LocalFlag.PRIMARY
    assert flags[OTHER] == LocalFlag.NODE_PORT
