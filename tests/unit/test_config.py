"""Configuration values: what is accepted, and the one line that says what is wrong."""

import socket

import pytest

from kbpf.config import (
    ListenAddress,
    cluster_cidrs,
    expand_node_port_addresses,
    listen_address,
    node_ips,
    node_name,
    node_port_address,
)
from kbpf.model.address import Address, Family


def test_the_node_name_is_trimmed_and_lower_case():
    assert node_name("  Node-A ") == "node-a"


def test_an_empty_node_name_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        node_name("  ")


def test_without_an_override_it_is_the_host_s():
    assert node_name("") == socket.gethostname().lower()


def test_cluster_cidrs_are_one_a_family():
    assert cluster_cidrs("10.42.0.0/16, fd42::/48") == {Family.IPV4: "10.42.0.0/16", Family.IPV6: "fd42::/48"}
    assert cluster_cidrs("") == {}


@pytest.mark.parametrize("text", ["10.42.0.0", "10.42.0.0/33", "10.0.0.0/8,11.0.0.0/8", "x"])
def test_a_wrong_cluster_cidr_is_shown(text: str):
    with pytest.raises(ValueError, match=r"'.*': "):
        cluster_cidrs(text)


def test_node_ips_are_one_a_family():
    assert node_ips("192.168.60.11,FD60::11") == ("192.168.60.11", "fd60::11")


@pytest.mark.parametrize("text", ["192.168.60.11,192.168.60.12", "host", "fe80::1%eth0"])
def test_wrong_node_ips_are_shown(text: str):
    with pytest.raises(ValueError, match=r"'.*': "):
        node_ips(text)


def test_node_port_addresses_keep_their_words_until_the_node_is_known():
    assert [node_port_address(text) for text in ("primary", "10.1.2.3/8")] == ["primary", "10.0.0.0/8"]


@pytest.mark.parametrize("text", ["secondary", "10.0.0.1", "primary;all"])
def test_wrong_node_port_addresses_are_told_what_there_is(text: str):
    with pytest.raises(ValueError, match="neither a CIDR nor one of primary, localhost, all"):
        node_port_address(text)


@pytest.mark.parametrize(
    ("words", "ipv4", "ipv6"),
    [
        ((), ("0.0.0.0/0",), ("::/0",)),
        (("primary",), ("192.168.60.11/32",), ("fd60::11/128",)),
        (("localhost", "10.0.0.0/8"), ("127.0.0.0/8", "10.0.0.0/8"), ("::1/128",)),
        (("10.0.0.0/8",), ("10.0.0.0/8",), ("::/0",)),
        (("10.0.0.0/8", "all"), ("0.0.0.0/0",), ("::/0",)),
    ],
)
def test_words_are_expanded_and_a_family_without_ranges_is_open(words: tuple, ipv4: tuple, ipv6: tuple):
    own = (Address("192.168.60.11"), Address("fd60::11"))
    assert expand_node_port_addresses(words, own) == {Family.IPV4: ipv4, Family.IPV6: ipv6}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:10256", ListenAddress("0.0.0.0", 10256)),
        ("127.0.0.1", ListenAddress("127.0.0.1", 10256)),
        ("[::1]:99", ListenAddress("::1", 99)),
        ("::", ListenAddress("::", 10256)),
    ],
)
def test_listen_addresses(text: str, address: ListenAddress):
    assert listen_address(text, 10256) == address


@pytest.mark.parametrize("text", ["localhost:1", "0.0.0.0:0", "0.0.0.0:65536", "0.0.0.0:x"])
def test_wrong_listen_addresses_are_shown(text: str):
    with pytest.raises(ValueError, match=f"'{text}'"):
        listen_address(text, 10256)
