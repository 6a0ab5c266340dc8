"""A network device of this node, as far as a packet path asks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    name: str
    has_ethernet_header: bool = True
    """Tunnels and WireGuard carry IP packets without one."""
