"""The kernel's connection tracking table, as far as UDP flows to Services need it: list, and delete.

A UDP flow has no end that the kernel could see: its entry lives on as long as the client sends, and decides where the
datagrams go whatever the rules say now. `stale_udp` finds the entries that must go, `udp_cleanup` runs both after a
sync. All of it by netlink: no `conntrack` binary, and nothing here loads connection tracking where nobody uses it.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from kbpf.errors import HostError
from kbpf.host.netlink import ATTRIBUTE, NLA_F_NESTED, NetlinkSocket, Payload, attribute, attributes, nested
from kbpf.model.address import Address, Family

NETLINK_NETFILTER = 12
GET_ENTRY, DELETE_ENTRY = (1 << 8) | 1, (1 << 8) | 2
NETFILTER_HEADER = struct.Struct("=BBH")  # family, version, resource id
ADDRESS_FAMILY = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
CTA_TUPLE_ORIG, CTA_TUPLE_REPLY, CTA_ID, CTA_ZONE, CTA_FILTER = 1, 2, 12, 18, 25
CTA_TUPLE_PROTO, CTA_PROTO_NUM = 2, 1
CTA_FILTER_ORIG_FLAGS, BY_PROTOCOL_NUMBER = 1, 1 << 3

ONLY_UDP = nested(
    CTA_TUPLE_ORIG, nested(CTA_TUPLE_PROTO, attribute(CTA_PROTO_NUM, bytes([socket.IPPROTO_UDP])))
) + nested(CTA_FILTER, attribute(CTA_FILTER_ORIG_FLAGS, struct.pack("=I", BY_PROTOCOL_NUMBER)))
"""The kernel leaves out what is not UDP (since 5.8; older ones ignore this and send everything)."""

STATISTICS = Path("/proc/net/stat/nf_conntrack")
ENTRY_COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")
"""Of the reader's network namespace; absent while connection tracking is not loaded."""
ENTRY_ROOM = Path("/proc/sys/net/netfilter/nf_conntrack_max")


class UdpEntry(NamedTuple):
    """One tracked flow. Addresses are in network order, four or sixteen bytes.

    `destination` is whom the client talks to; `reply_source` is who really answers: the backend behind the DNAT, or the
    destination itself when nothing translated the flow.
    """

    destination: bytes
    port: int
    reply_source: bytes
    reply_port: int
    attributes: bytes
    """The entry as the kernel wrote it; `delete` names it by them."""


class Conntrack(Protocol):
    """Both methods raise HostError when the kernel refuses."""

    def list_udp(self, family: Family) -> Iterable[UdpEntry]:
        """Every tracked UDP flow of the family; none where connection tracking is not in use."""
        ...

    def delete(self, entries: Iterable[UdpEntry]) -> int:
        """Forget the entries; returns how many of them were still there."""
        ...


class KernelConntrack:
    """The table of the caller's network namespace."""

    def list_udp(self, family: Family) -> Iterator[UdpEntry]:
        """Entries come as they are read, so that a large table is never held at once.

        A dump that the kernel calls interrupted is run once more: entries may then come twice, and what is missing
        after that is left for the next clean-up.
        """
        if not _has_entries():
            return
        layout = LAYOUTS[family]
        request = NETFILTER_HEADER.pack(ADDRESS_FAMILY[family], 0, 0) + ONLY_UDP
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as netlink:
                for _ in range(2):
                    dump = netlink.dump(GET_ENTRY, request)
                    yield from filter(None, map(layout.entry, dump))
                    if not dump.is_interrupted:
                        return
        except OSError as error:
            raise HostError(f"cannot list conntrack entries: {error.strerror or error}") from error

    def delete(self, entries: Iterable[UdpEntry]) -> int:
        requests = [_delete_request(entry) for entry in entries]
        if not requests:
            return 0
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as netlink:
                errors = netlink.send(DELETE_ENTRY, requests)
        except OSError as error:
            raise HostError(f"cannot delete conntrack entries: {error.strerror or error}") from error
        # ENOENT: it ended meanwhile. EBUSY: the hardware has the flow, and gives it back when it falls idle.
        refused = [code for code in errors if code not in (errno.ENOENT, errno.EBUSY)]
        if refused:
            raise HostError(f"cannot delete conntrack entries: {os.strerror(refused[0])}")
        return len(requests) - len(errors)


def has_translated_flows() -> bool:
    """Is there a TCP or UDP connection with a rewritten end? If the kernel does not say, there may be."""
    if not _has_entries():
        return False
    try:
        return any(_has_translated(family) for family in Family)
    except OSError:
        return True


def _has_translated(family: Family) -> bool:
    layout = LAYOUTS[family]
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        return any(
            map(layout.is_translated, netlink.dump(GET_ENTRY, NETFILTER_HEADER.pack(ADDRESS_FAMILY[family], 0, 0)))
        )


class TupleLayout:
    """Where in an entry of one family its two tuples lie.

    The kernel has always written source and destination, then protocol, source port and destination port: one unpack
    reads in a third of the time what a walk over the nested attributes finds.
    """

    def __init__(self, address_bytes: int) -> None:
        address, no_address = f"4x{address_bytes}s", f"4x{address_bytes}x"
        port, no_port = "4xH2x", "8x"
        original = f"4s 4x{no_address}{address} 4x 4xB3x {no_port}{port}"
        reply = f"4s 4x{address}{no_address} 4x 8x {port}{no_port}"
        self._fields = struct.Struct(f"!{original} {reply}".replace(" ", ""))
        self._ends = struct.Struct(f"!4x4x{address}{address}4x8x{port}{port}")
        length = self._fields.size // 2
        self._original_header = ATTRIBUTE.pack(length, CTA_TUPLE_ORIG | NLA_F_NESTED)
        self._reply_header = ATTRIBUTE.pack(length, CTA_TUPLE_REPLY | NLA_F_NESTED)

    def entry(self, payload: Payload) -> UdpEntry | None:
        """None for other protocols, and for flows of a one-way conntrack zone, which no rule of ours makes."""
        buffer, start, end = payload
        found = self._tuples(payload)
        if found is None or found[1] != socket.IPPROTO_UDP:
            return None
        destination, _, port, source, source_port = found
        return UdpEntry(destination, port, source, source_port, buffer[start + NETFILTER_HEADER.size : end])

    def is_translated(self, payload: Payload) -> bool:
        """Are the answers of a TCP or UDP flow no mirror image of it? Either end may have been rewritten."""
        found = self._tuples(payload)
        if found is None or found[1] not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
            return False
        buffer, start, _ = payload
        original = self._ends.unpack_from(buffer, start + NETFILTER_HEADER.size)
        reply = self._ends.unpack_from(buffer, start + NETFILTER_HEADER.size + self._ends.size)
        source, destination, source_port, port = original
        return (destination, source, port, source_port) != reply

    def _tuples(self, payload: Payload) -> tuple[bytes, int, int, bytes, int] | None:
        """Destination, protocol and port of the original direction, source and port of the replies."""
        buffer, start, end = payload
        start += NETFILTER_HEADER.size
        if end - start < self._fields.size:
            return None
        original, destination, protocol, port, reply, source, source_port = self._fields.unpack_from(buffer, start)
        if original != self._original_header or reply != self._reply_header:
            return None
        return destination, protocol, port, source, source_port


LAYOUTS = {Family.IPV4: TupleLayout(4), Family.IPV6: TupleLayout(16)}


def network_order(address: Address) -> bytes:
    """Four or sixteen bytes, as entries hold addresses."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _has_entries() -> bool:
    """Asking by netlink would load connection tracking, and so slow down every packet of a node that has none."""
    try:
        return int(ENTRY_COUNT.read_text()) > 0
    except OSError:
        return False


def _delete_request(entry: UdpEntry) -> bytes:
    """Names the entry by its tuple, its zone and its id: one that a client has made anew since is another entry."""
    parts = {
        kind: entry.attributes[start:end] for kind, start, end in attributes(entry.attributes, 0, len(entry.attributes))
    }
    family = socket.AF_INET if len(entry.destination) == 4 else socket.AF_INET6
    # A request without the tuple would empty the whole table, so its absence must raise.
    names = nested(CTA_TUPLE_ORIG, parts[CTA_TUPLE_ORIG])
    names += b"".join(attribute(kind, parts[kind]) for kind in (CTA_ZONE, CTA_ID) if kind in parts)
    return NETFILTER_HEADER.pack(family, 0, 0) + names


def conntrack_state() -> tuple[int, int, int] | None:
    """Tracked connections of this network namespace, how many there may be, and how many could not be recorded.

    None while nothing is tracked. One cannot be recorded when its twin came at the same moment, as two questions of a
    resolver do; that costs a packet.
    """
    try:
        failures = failed_inserts(STATISTICS.read_text())
        return int(ENTRY_COUNT.read_text()), int(ENTRY_ROOM.read_text()), failures
    except OSError:
        return None


def failed_inserts(statistics: str) -> int:
    """From a table with a line for each processor, in hexadecimal."""
    head, *lines = statistics.splitlines() or [""]
    columns = head.split()
    if "insert_failed" not in columns:
        return 0
    place = columns.index("insert_failed")
    return sum(int(line.split()[place], 16) for line in lines)
