"""Addresses and networks: one canonical spelling, or a reason why not."""

import pytest

from kbpf.model.address import (
    Address,
    Family,
    family_of,
    host_port,
    packed,
    parse_address,
    parse_cidr,
    unpacked,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.001.02.3", "10.1.2.3"),
        ("0.0.0.0", "0.0.0.0"),
        ("255.255.255.255", "255.255.255.255"),
        ("FD00::0001", "fd00::1"),
        ("fd00:0:0:0:0:0:0:1", "fd00::1"),
        ("::1", "::1"),
        ("::", "::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:a00:1", "10.0.0.1"),
        ("::10.0.0.1", "::a00:1"),
        ("64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
    ],
)
def test_an_address_has_one_spelling(text: str, canonical: str):
    assert parse_address(text) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10.0.0",
        "10.0.0.0.1",
        "10.0.0.256",
        "10.0.0.-1",
        "10.0.0.1 ",
        " 10.0.0.1",
        "10.0.0.1\n",
        "10.0.0.0x1",
        "10..0.1",
        "10.0.0.1/32",
        "10.0.0.00001",
        "167772161",
        "١٠.0.0.1",
        "10.0.0.²",
        "fe80::1%eth0",
        "fe80::1%",
        "fd00::1::2",
        "fd00:::1",
        "g::1",
        "[fd00::1]",
        "fd00::1/128",
        "fd00::1\0",
        ":",
        "1:2:3:4:5:6:7",
        "localhost",
        "10.0.0.1 -j ACCEPT",
        "10.0.0.1\n-A KUBE-X -j ACCEPT",
    ],
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(ValueError, match=r"address|zone"):
        parse_address(text)


def test_a_zone_id_is_refused_by_its_name():
    with pytest.raises(ValueError, match="zone ids are not allowed"):
        parse_address("fe80::1%eth0")


@pytest.mark.parametrize(
    ("text", "family", "canonical"),
    [
        ("10.0.0.0/8", Family.IPV4, "10.0.0.0/8"),
        ("10.1.2.3/8", Family.IPV4, "10.0.0.0/8"),
        ("010.0.0.0/08", Family.IPV4, "10.0.0.0/8"),
        ("0.0.0.0/0", Family.IPV4, "0.0.0.0/0"),
        ("10.0.0.1/32", Family.IPV4, "10.0.0.1/32"),
        ("FD00::1/64", Family.IPV6, "fd00::/64"),
        ("::/0", Family.IPV6, "::/0"),
    ],
)
def test_a_network_has_one_spelling(text: str, family: Family, canonical: str):
    assert parse_cidr(text) == (family, canonical)


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "fd00::/129", "10.0.0.0/255.0.0.0", "10.0.0.0/8/8",
     "10.0.0.0/٨", "x/8", "192.0.2.0/24 -j ACCEPT"],
)  # fmt: skip
def test_what_is_no_network_is_refused(text: str):
    with pytest.raises(ValueError, match="not a"):
        parse_cidr(text)


@pytest.mark.parametrize("text", ["10.1.2.3", "0.0.0.0", "fd00::1", "::", "::1", "::a00:1"])
def test_sixteen_bytes_and_back(text: str):
    raw = packed(parse_address(text))
    assert len(raw) == 16
    assert unpacked(raw) == text


def test_ipv4_is_packed_as_the_mapped_address():
    assert packed(Address("10.1.2.3")).hex() == "00000000000000000000ffff0a010203"


def test_family_and_its_width():
    assert (family_of("10.0.0.1"), family_of("::1")) == (Family.IPV4, Family.IPV6)
    assert (Family.IPV4.bits, Family.IPV6.bits) == (32, 128)


def test_ipv6_stands_in_brackets_before_a_port():
    assert (host_port("10.0.0.1", 80), host_port("fd00::1", 80)) == ("10.0.0.1:80", "[fd00::1]:80")
