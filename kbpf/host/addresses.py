"""The addresses of this node: where node ports answer, and what the socket hooks take for the node itself.

Read anew whenever a caller asks; what depends on it takes `local_addresses` as a function.
"""

import socket
import struct
from collections.abc import Iterator

from kbpf.errors import HostError
from kbpf.host.netlink import NetlinkSocket, Payload, attributes
from kbpf.model.address import Address, parse_address

GET_ADDRESS = 22
ADDRESS_HEADER = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface
SCOPE_LINK = 253
IFA_ADDRESS, IFA_LOCAL = 1, 2
DUPLICATE_DETECTED = 0x08


def local_addresses() -> frozenset[Address]:
    """Every address of the caller's network namespace, loopback included, IPv6 link-local ones left out.

    fe80:: addresses mean something only together with an interface: the same one may be ours on one link and the
    router's on another. Raises HostError.
    """
    try:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            dump = netlink.dump(GET_ADDRESS, ADDRESS_HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
            return frozenset(address for payload in dump for address in addresses_in(payload))
    except OSError as error:
        raise HostError(f"cannot list the node's addresses: {error.strerror or error}") from error


def addresses_in(payload: Payload) -> Iterator[Address]:
    buffer, start, end = payload
    family, _, flags, scope, _ = ADDRESS_HEADER.unpack_from(buffer, start)
    if family not in (socket.AF_INET, socket.AF_INET6) or flags & DUPLICATE_DETECTED:
        return
    if family == socket.AF_INET6 and scope == SCOPE_LINK:
        return
    found = {kind: buffer[first:last] for kind, first, last in attributes(buffer, start + ADDRESS_HEADER.size, end)}
    # On a point-to-point link IFA_ADDRESS is the other end.
    raw = found.get(IFA_LOCAL) or found.get(IFA_ADDRESS)
    if raw:
        yield parse_address(socket.inet_ntop(family, raw))
