"""Network devices of this node, and programs on them, as far as a packet path asks."""

from enum import Enum
from typing import NamedTuple

import msgspec


class Device(msgspec.Struct, frozen=True):
    index: int
    name: str
    has_ethernet_header: bool = True
    """Tunnels and WireGuard carry IP packets without one."""
    is_bridge: bool = False
    is_of_pods: bool = False
    """Whoever sends by it is a pod of this node."""


class Side(Enum):
    """Where on a device a program sees packets."""

    INGRESS = "ingress"
    EGRESS = "egress"


class PacketFilter(NamedTuple):
    """A BPF program in the traffic control layer of a device."""

    device: int
    """Its index."""
    side: Side
    program_id: int
    owner: str
