"""BPF filters of the traffic control layer, by netlink: how packet programs get onto devices before Linux 6.6.

Ours have a priority and a handle of their own, so that filters of others run before and after them and are never
touched; the filter's name says who put it there. The datapath decides what belongs where (`ebpf/filters.py`). All calls
are about the network namespace of the calling thread, and raise OSError.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator

from kbpf.host.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NetlinkSocket,
    attribute,
    attributes,
    nested,
)
from kbpf.model.device import PacketFilter, Side

PRIORITY = 0x6B62
"""Lower ones run before ours. `tc` counts down from 0xC000 where none is given."""
HANDLE = 0x6B627066

NEW_QDISC, DELETE_QDISC, GET_QDISC = 36, 37, 38
NEW_FILTER, DELETE_FILTER, GET_FILTER = 44, 45, 46
HEADER = struct.Struct("=BxxxiIII")  # family, device, handle, parent, priority and protocol
NUMBER = struct.Struct("=I")
CLSACT, CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
PARENTS = {Side.INGRESS: 0xFFFFFFF2, Side.EGRESS: 0xFFFFFFF3}
EVERY_PROTOCOL = 0x0003
PLACE = PRIORITY << 16 | socket.htons(EVERY_PROTOCOL)
KIND, OPTIONS = 1, 2
BPF_FD, BPF_NAME, BPF_FLAGS, BPF_ID = 6, 7, 8, 11
DIRECT_ACTION = 1  # the program's answer is the verdict


class ClsactFilters:
    def found(self) -> list[PacketFilter]:
        """What has our priority and handle, whoever put it there, on all devices."""
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            places = [(device, side) for device in _devices(netlink) for side in Side]
            return [each for device, side in places if (each := _ours(netlink, device, side))]

    def put(self, device: int, side: Side, program_fd: int, owner: str) -> None:
        """In the place of the owner's old program, if there is one: each packet meets the one or the other."""
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            _ensure_qdisc(netlink, device)
            there = _ours(netlink, device, side)
            if there is not None and there.owner != owner:
                raise FileExistsError(errno.EEXIST, f"the filter's place is taken by {there.owner!r}")
            options = nested(
                OPTIONS,
                attribute(BPF_FD, NUMBER.pack(program_fd)),
                attribute(BPF_NAME, os.fsencode(owner) + b"\0"),
                attribute(BPF_FLAGS, NUMBER.pack(DIRECT_ACTION)),
            )
            netlink.change(NEW_FILTER, _filter(device, side) + options, NLM_F_CREATE | NLM_F_REPLACE)

    def remove(self, device: int, side: Side) -> None:
        """Whatever has our priority and handle there; with the last filter of anybody the qdisc goes, too."""
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            netlink.change(DELETE_FILTER, _filter(device, side))
            if not any(_has_filters(netlink, device, each) for each in Side):
                netlink.change(DELETE_QDISC, HEADER.pack(0, device, CLSACT_HANDLE, CLSACT, 0))


def _ensure_qdisc(netlink: NetlinkSocket, device: int) -> None:
    header = HEADER.pack(0, device, CLSACT_HANDLE, CLSACT, 0)
    try:
        netlink.change(NEW_QDISC, header + attribute(KIND, b"clsact\0"), NLM_F_CREATE | NLM_F_EXCL)
    except FileExistsError:
        if device not in _devices(netlink):
            raise FileExistsError(errno.EEXIST, "a queueing discipline of another kind is in the way") from None


def _devices(netlink: NetlinkSocket) -> list[int]:
    """Those with a clsact queueing discipline."""
    found = []
    for buffer, start, end in netlink.dump(GET_QDISC, HEADER.pack(0, 0, 0, 0, 0)):
        device = HEADER.unpack_from(buffer, start)[1]
        kinds = [buffer[a:b] for kind, a, b in attributes(buffer, start + HEADER.size, end) if kind == KIND]
        if kinds == [b"clsact\0"]:
            found.append(device)
    return found


def _filter(device: int, side: Side) -> bytes:
    return HEADER.pack(0, device, HANDLE, PARENTS[side], PLACE) + attribute(KIND, b"bpf\0")


def _ours(netlink: NetlinkSocket, device: int, side: Side) -> PacketFilter | None:
    for handle, place, options in _filters(netlink, device, side):
        if (handle, place) == (HANDLE, PLACE):
            found = {kind: options[start:end] for kind, start, end in attributes(options, 0, len(options))}
            owner = os.fsdecode(found.get(BPF_NAME, b"").rstrip(b"\0"))
            return PacketFilter(device, side, int.from_bytes(found.get(BPF_ID, b""), sys.byteorder), owner)
    return None


def _has_filters(netlink: NetlinkSocket, device: int, side: Side) -> bool:
    return any(handle for handle, _, _ in _filters(netlink, device, side))


def _filters(netlink: NetlinkSocket, device: int, side: Side) -> Iterator[tuple[int, int, bytes]]:
    """(handle, priority and protocol, options); the one without a handle speaks of the priority itself."""
    # Read to the end: the socket must be free for the next request.
    for buffer, start, end in list(netlink.dump(GET_FILTER, HEADER.pack(0, device, 0, PARENTS[side], 0))):
        _, _, handle, _, place = HEADER.unpack_from(buffer, start)
        options = [buffer[a:b] for kind, a, b in attributes(buffer, start + HEADER.size, end) if kind == OPTIONS]
        yield handle, place, options[0] if options else b""
