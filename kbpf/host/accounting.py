"""Named packet counters of the kernel (nfnetlink_acct), which rules can refer to.

Whoever makes the iptables datapath gives it `create_counters`. They live in the caller's network namespace.
"""

import errno
import socket
import struct
from collections.abc import Iterable

from kbpf.host.netlink import NetlinkSocket, Payload, attribute, attributes

NETLINK_NETFILTER = getattr(socket, "NETLINK_NETFILTER", 12)
NFNL_MSG_ACCT_NEW, NFNL_MSG_ACCT_GET = 7 << 8, 7 << 8 | 1
GENERIC_HEADER = struct.pack("=BBH", socket.AF_UNSPEC, 0, 0)
NFACCT_NAME, NFACCT_PACKETS = 1, 2
PACKETS = struct.Struct(">Q")
EXISTS = (errno.EEXIST, errno.EBUSY)
"""The kernel calls a counter that is there already busy unless it was asked for a new one only."""


def create_counters(names: Iterable[str]) -> bool:
    """Make those that do not exist. False when the kernel has no such counters, or does not let us make them."""
    requests = [GENERIC_HEADER + attribute(NFACCT_NAME, name.encode() + b"\0") for name in names]
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            errors = netlink.send(NFNL_MSG_ACCT_NEW, requests)
    except OSError:
        return False
    return all(error in EXISTS for error in errors)


def read_counters() -> dict[str, int]:
    """Packets by the counter's name; nothing where the kernel has no counters, or does not let us read them."""
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            return dict(_counter(payload) for payload in netlink.dump(NFNL_MSG_ACCT_GET, GENERIC_HEADER))
    except OSError:
        return {}


def _counter(payload: Payload) -> tuple[str, int]:
    buffer, start, end = payload
    found = {kind: buffer[first:last] for kind, first, last in attributes(buffer, start + len(GENERIC_HEADER), end)}
    return found[NFACCT_NAME].rstrip(b"\0").decode(errors="replace"), PACKETS.unpack(found[NFACCT_PACKETS])[0]
