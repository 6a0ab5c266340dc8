"""Entries of the connection tracking table: made without any traffic, and taken away.

flow = TrackedFlow("10.42.1.9", 40001, "10.96.0.10", 53, "10.42.1.5", 5353)
create([flow])        into the table of the caller's network namespace
entry_of(flow)        as a value, for the fake and for what is pure
forget_unanswered()   what clients tried in vain so far, in the caller's network namespace
"""

import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kbpf.host.conntrack import (
    CTA_TUPLE_ORIG,
    DELETE_ENTRY,
    GET_ENTRY,
    NETFILTER_HEADER,
    NETLINK_NETFILTER,
    UdpEntry,
    network_order,
)
from kbpf.host.netlink import HEADER, NetlinkSocket, Payload, attribute, attributes, nested
from kbpf.model.address import Address

NEW_ENTRY = 1 << 8
CTA_STATUS, SEEN_REPLY = 3, 1 << 1
REQUEST_CREATE = 0x1 | 0x400
BATCH = 100
TIMEOUT_S = 600


class TrackedFlow(NamedTuple):
    """A client's flow, and who answers it."""

    client: str
    client_port: int
    destination: str
    port: int
    reply_source: str
    reply_port: int
    protocol: int = socket.IPPROTO_UDP
    zone: int = 0


def untranslated(client: str, client_port: int, destination: str, port: int) -> TrackedFlow:
    """A flow that met no rule: its destination itself would have to answer."""
    return TrackedFlow(client, client_port, destination, port, destination, port)


def entry_of(flow: TrackedFlow) -> UdpEntry:
    return UdpEntry(
        network_order(Address(flow.destination)),
        flow.port,
        network_order(Address(flow.reply_source)),
        flow.reply_port,
        repr(flow).encode(),
    )


def create(flows: Sequence[TrackedFlow]) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        netlink.bind((0, 0))
        for first in range(0, len(flows), BATCH):
            netlink.send(b"".join(map(request, flows[first : first + BATCH])))
            _expect_no_error(netlink)


def _expect_no_error(netlink: socket.socket) -> None:
    try:
        answer = netlink.recv(65536, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    code = -struct.unpack_from("=i", answer, HEADER.size)[0]
    raise OSError(code, f"creating a conntrack entry: {os.strerror(code)}")


def forget_unanswered() -> None:
    """Forget every flow without an answer.

    A connection that is tried before the rules of its Service are there leaves an entry without translation for two
    minutes, whoever writes the rules. A new connection from the same port meets it, and fails.
    """
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            header = NETFILTER_HEADER.pack(family, 0, 0)
            found = [tuple_ for tuple_ in map(_unanswered, netlink.dump(GET_ENTRY, header)) if tuple_]
            netlink.send(DELETE_ENTRY, [header + nested(CTA_TUPLE_ORIG, tuple_) for tuple_ in found])


def _unanswered(payload: Payload) -> bytes | None:
    """The original tuple of a flow that has no answer."""
    buffer, start, end = payload
    parts = {kind: buffer[first:last] for kind, first, last in attributes(buffer, start + NETFILTER_HEADER.size, end)}
    (status,) = struct.unpack("!I", parts[CTA_STATUS])
    return None if status & SEEN_REPLY else bytes(parts[CTA_TUPLE_ORIG])


def request(flow: TrackedFlow) -> bytes:
    original = _tuple(1, flow.client, flow.destination, flow.protocol, flow.client_port, flow.port)
    reply = _tuple(2, flow.reply_source, flow.client, flow.protocol, flow.reply_port, flow.client_port)
    timeout = attribute(7, struct.pack("!I", TIMEOUT_S))
    zone = attribute(18, struct.pack("!H", flow.zone)) if flow.zone else b""
    state = nested(4, nested(1, attribute(1, b"\x03"))) if flow.protocol == socket.IPPROTO_TCP else b""
    family = socket.AF_INET6 if ":" in flow.destination else socket.AF_INET
    body = struct.pack("=BBH", family, 0, 0) + original + reply + timeout + state + zone
    return HEADER.pack(HEADER.size + len(body), NEW_ENTRY, REQUEST_CREATE, 1, 0) + body


def _tuple(kind: int, source: str, destination: str, protocol: int, source_port: int, port: int) -> bytes:
    first = 3 if ":" in source else 1
    return nested(
        kind,
        nested(
            1,
            attribute(first, network_order(Address(source))),
            attribute(first + 1, network_order(Address(destination))),
        ),
        nested(
            2,
            attribute(1, bytes([protocol])),
            attribute(2, struct.pack("!H", source_port)),
            attribute(3, struct.pack("!H", port)),
        ),
    )
