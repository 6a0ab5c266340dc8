"""The uplinks of this node: the devices by which packets from elsewhere arrive and their answers leave.

That is every device with a default route or with an address of the node as the cluster knows it, and what the operator
names. Asked by the composition root at each full sync; `network_watch` says when to ask again.
"""

import fnmatch
import socket
import struct
import sys
from collections.abc import Collection, Iterator

from kbpf.errors import HostError
from kbpf.host.addresses import ADDRESS_HEADER, GET_ADDRESS, addresses_in
from kbpf.host.netlink import NetlinkSocket, Payload, attributes
from kbpf.model.address import Address, Family, family_of
from kbpf.model.device import Device

GET_LINK, GET_ROUTE = 18, 26
LINK_HEADER = struct.Struct("=BxHiII")  # family, type of hardware, index, flags, change
ROUTE_HEADER = struct.Struct("=BBBBBBBBI")  # family, two lengths, service, table, protocol, scope, type, flags
NEXT_HOP = struct.Struct("=HBBi")  # length, flags, hops, index
IFLA_IFNAME, IFLA_LINKINFO, IFLA_INFO_KIND = 3, 18, 1
RTA_OIF, RTA_MULTIPATH = 4, 9
ETHERNET, LOOPBACK = 1, 772
TABLE_MAIN, UNICAST, SCOPE_GLOBAL = 254, 1, 0


def uplinks(node_addresses: Collection[Address], patterns: Collection[str] = ()) -> tuple[Device, ...]:
    """By index. `patterns` are shell patterns of names. Raises HostError."""
    try:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            devices = dict(_links(netlink))
            wanted = {*_with_default_route(netlink), *_with_address(netlink, node_addresses)}
    except OSError as error:
        raise HostError(f"cannot list the node's network devices: {error.strerror or error}") from error
    named = {
        index
        for index, device in devices.items()
        if any(fnmatch.fnmatchcase(device.name, pattern) for pattern in patterns)
    }
    return tuple(devices[index] for index in sorted(wanted | named) if index in devices)


def first_addresses(devices: Collection[Device]) -> frozenset[Address]:
    """In each family the first address of these devices that means something beyond their link. Raises HostError."""
    indices = {device.index for device in devices}
    found: dict[Family, Address] = {}
    try:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            for payload in netlink.dump(GET_ADDRESS, ADDRESS_HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
                _, _, _, scope, index = ADDRESS_HEADER.unpack_from(payload.buffer, payload.start)
                if index in indices and scope == SCOPE_GLOBAL:
                    for address in addresses_in(payload):
                        found.setdefault(family_of(address), address)
    except OSError as error:
        raise HostError(f"cannot list the node's addresses: {error.strerror or error}") from error
    return frozenset(found.values())


def _links(netlink: NetlinkSocket) -> Iterator[tuple[int, Device]]:
    """All but loopback devices: what arrives there was sent by a socket of this node."""
    for buffer, start, end in netlink.dump(GET_LINK, LINK_HEADER.pack(0, 0, 0, 0, 0)):
        _, hardware, index, _, _ = LINK_HEADER.unpack_from(buffer, start)
        if hardware == LOOPBACK:
            continue
        found = {kind: buffer[a:b] for kind, a, b in attributes(buffer, start + LINK_HEADER.size, end)}
        name = found[IFLA_IFNAME].rstrip(b"\0").decode(errors="replace")
        yield index, Device(index, name, hardware == ETHERNET, _kind(found.get(IFLA_LINKINFO, b"")) == b"bridge")


def _kind(link: bytes) -> bytes:
    kinds = [link[a:b] for kind, a, b in attributes(link, 0, len(link)) if kind == IFLA_INFO_KIND]
    return kinds[0].rstrip(b"\0") if kinds else b""


def _with_address(netlink: NetlinkSocket, wanted: Collection[Address]) -> Iterator[int]:
    for payload in netlink.dump(GET_ADDRESS, ADDRESS_HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
        if any(address in wanted for address in addresses_in(payload)):
            yield ADDRESS_HEADER.unpack_from(payload.buffer, payload.start)[4]


def _with_default_route(netlink: NetlinkSocket) -> Iterator[int]:
    for family in (socket.AF_INET, socket.AF_INET6):
        for payload in netlink.dump(GET_ROUTE, ROUTE_HEADER.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            yield from _default_route(payload)


def _default_route(payload: Payload) -> Iterator[int]:
    buffer, start, end = payload
    _, length, _, _, table, _, _, kind, _ = ROUTE_HEADER.unpack_from(buffer, start)
    if length or table != TABLE_MAIN or kind != UNICAST:
        return
    for number, first, last in attributes(buffer, start + ROUTE_HEADER.size, end):
        if number == RTA_OIF:
            yield int.from_bytes(buffer[first:last], sys.byteorder)
        elif number == RTA_MULTIPATH:
            while first + NEXT_HOP.size <= last:
                hop_length, _, _, index = NEXT_HOP.unpack_from(buffer, first)
                yield index
                first += max((hop_length + 3) & ~3, NEXT_HOP.size)
