"""Entries for the connection tracking table, without any traffic.

flow = TrackedFlow("10.42.1.9", 40001, "10.96.0.10", 53, "10.42.1.5", 5353)
create([flow])        into the table of the caller's network namespace
entry_of(flow)        as a value, for the fake and for what is pure
"""

import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kbpf.host.conntrack import NETLINK_NETFILTER, UdpEntry, network_order
from kbpf.host.netlink import HEADER, attribute, nested
from kbpf.model.address import Address

NEW_ENTRY = 1 << 8
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
