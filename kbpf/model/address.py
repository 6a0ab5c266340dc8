"""IP addresses as canonical text.

The API speaks text, sorting rules speak text ("10.0.0.10:80" < "10.0.0.9:80") and iptables speaks text, so an address
is parsed once at the border into its one canonical spelling and stays a string; `packed` gives the maps' 16 bytes.
Parsing 100,000 endpoints this way costs a tenth of building as many `ipaddress` objects.
"""

import ipaddress
import socket
from functools import lru_cache
from typing import NewType

from kbpf.model.constant import Constant

Address = NewType("Address", str)
"""Canonical text: IPv4 without leading zeros, IPv6 compressed and in lower case, never a zone id."""

_SPECIAL_STARTS = ("0.", "127.", "169.254.", "224.0.0.", "::", "fe", "ff")
"""Every address of special use begins so, and some others; a look at the text spares nearly all of them the rest."""
V4_MAPPED_PREFIX = bytes(10) + b"\xff\xff"


class Family(Constant):
    IPV4 = "IPv4"
    IPV6 = "IPv6"

    @property
    def bits(self) -> int:
        return 32 if self is Family.IPV4 else 128


def family_of(address: str) -> Family:
    """The family of canonical text; it is not a parser."""
    return Family.IPV6 if ":" in address else Family.IPV4


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address:
    """Canonical form of an address as the API may spell it.

    Leading zeros in IPv4 are decimal, as kube-proxy's lenient parser reads them (KEP-4858); an IPv4-mapped IPv6 address
    is the IPv4 address. Raises ValueError for anything else, zone ids included: they mean nothing on another machine.
    """
    if ":" not in text:
        try:  # the usual spelling, at a fifth of the price
            canonical = Address(socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, text)))
        except (OSError, ValueError):
            return _lenient(text)
        return Address(text) if text == canonical else canonical
    if "%" in text:
        raise ValueError("zone ids are not allowed")
    try:
        raw = socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError) as error:  # ValueError: an embedded NUL
        raise ValueError("not an IP address") from error
    if raw.startswith(V4_MAPPED_PREFIX):
        return Address(socket.inet_ntop(socket.AF_INET, raw[12:]))
    return Address(ipaddress.IPv6Address(raw).compressed)


def _lenient(text: str) -> Address:
    """IPv4 with leading zeros. Raises ValueError."""
    parts = text.split(".")
    # isascii: str.isdigit alone also accepts digits of other scripts.
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        raise ValueError("not an IP address")
    numbers = [int(part) for part in parts]
    if max(numbers) > 255:
        raise ValueError("not an IP address")
    return Address(".".join(map(str, numbers)))


def special_use(address: Address) -> str:
    """What makes it no address of a pod, in the words of the API; empty for an ordinary one.

    The API server refuses such endpoints. Old objects may still hold them, and a proxy that follows them leads its
    clients to the daemons of the node, or to the metadata of its cloud (CVE-2021-25737).
    """
    if not address.startswith(_SPECIAL_STARTS):
        return ""
    found = ipaddress.ip_address(address)
    if found.is_unspecified:
        return "unspecified"
    if found.is_loopback:
        return "loopback"
    if found.is_multicast:  # the scope is the fourth digit of an IPv6 group; wider groups the API lets pass
        return "link-local multicast" if address.startswith("224.0.0.") or address[3] == "2" else ""
    return "link-local" if found.is_link_local else ""


def parse_cidr(text: str) -> tuple[Family, str]:
    """Family and canonical text of a network: host bits cleared. Raises ValueError."""
    address_text, slash, length_text = text.partition("/")
    address = parse_address(address_text)
    family = family_of(address)
    if not slash or not length_text.isascii() or not length_text.isdigit() or int(length_text) > family.bits:
        raise ValueError("not a CIDR")
    network = ipaddress.ip_network(f"{address}/{int(length_text)}", strict=False)
    return family, str(network)


def packed(address: Address) -> bytes:
    """Sixteen bytes in network order, IPv4 as ::ffff:a.b.c.d: the one form of the BPF maps."""
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)
    return V4_MAPPED_PREFIX + socket.inet_aton(address)


def unpacked(raw: bytes) -> Address:
    """The inverse of `packed`."""
    if raw.startswith(V4_MAPPED_PREFIX):
        return Address(socket.inet_ntop(socket.AF_INET, raw[12:]))
    return Address(ipaddress.IPv6Address(raw).compressed)


def host_port(address: str, port: int) -> str:
    """`10.0.0.1:80` or `[fd00::1]:80`: the spelling that chain hashes and sort orders are built on."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
