"""The kernel's sock_diag, as far as connected UDP sockets need it: list those of a network namespace, and end some.

A socket that is ended gives its owner ECONNABORTED, and has no peer afterwards; applications open another one.
`udp_sockets` decides which. The requests go to the namespace in which the netlink socket was opened.
"""

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbpf.host.netlink import NetlinkSocket
from kbpf.model.address import V4_MAPPED_PREFIX

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY, SOCK_DESTROY = 20, 21
REQUEST = struct.Struct("=BBxxI")  # family, protocol, states; the identity follows
MESSAGE = struct.Struct("=Bxxx")  # family; the identity follows
IDENTITY = struct.Struct("!HH16s16s")  # ports and addresses; then the device and the cookie, in host order
COOKIE = struct.Struct("=Q")
IDENTITY_BYTES, COOKIE_AT = 48, 40
ANY = bytes(IDENTITY_BYTES)
ESTABLISHED, ALL_STATES = 1 << 1, 0xFFFFFFFF
FAMILIES = (socket.AF_INET, socket.AF_INET6)


class DiagSocket(NamedTuple):
    """A connected UDP socket. `peer` is four or sixteen bytes in network order; a mapped address counts as IPv4."""

    peer: bytes
    peer_port: int
    cookie: int
    family: int
    identity: bytes
    """As the kernel wrote it."""


def connected_udp(netlink: NetlinkSocket) -> Iterator[DiagSocket]:
    """All of a namespace. Raises OSError."""
    for family in FAMILIES:
        for buffer, start, _ in netlink.dump(SOCK_DIAG_BY_FAMILY, _request(family, ESTABLISHED, ANY)):
            identity = buffer[start + MESSAGE.size : start + MESSAGE.size + IDENTITY_BYTES]
            _, port, _, peer = IDENTITY.unpack_from(identity)
            (cookie,) = COOKIE.unpack_from(identity, COOKIE_AT)
            yield DiagSocket(_short(peer, family), port, cookie, family, identity)


def end(netlink: NetlinkSocket, sockets: Iterable[DiagSocket]) -> list[int]:
    """End exactly these, by their cookies; returns the error numbers of those that were refused. Raises OSError."""
    return netlink.send(SOCK_DESTROY, [_request(each.family, ALL_STATES, each.identity) for each in sockets])


def _request(family: int, states: int, identity: bytes) -> bytes:
    return REQUEST.pack(family, socket.IPPROTO_UDP, states) + identity


def _short(address: bytes, family: int) -> bytes:
    if family == socket.AF_INET:
        return address[:4]
    return address.removeprefix(V4_MAPPED_PREFIX)
