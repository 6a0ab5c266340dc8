"""Packets for the packet programs, with scapy: built, taken apart again, and their checksums recomputed."""

from typing import Any, NamedTuple

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, TCPerror, UDPerror
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPerror6,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

__all__ = [
    "ICMP",
    "IP",
    "TCP",
    "UDP",
    "Ends",
    "Ether",
    "ICMPv6DestUnreach",
    "ICMPv6PacketTooBig",
    "ICMPv6ParamProblem",
    "ICMPv6TimeExceeded",
    "IPerror",
    "IPerror6",
    "IPv6",
    "IPv6ExtHdrDestOpt",
    "IPv6ExtHdrFragment",
    "IPv6ExtHdrHopByHop",
    "Packet",
    "Raw",
    "TCPerror",
    "UDPerror",
    "datagram",
    "ends",
    "frame",
    "has_right_checksums",
    "ip",
    "segment",
]


def frame(**fields: Any) -> Packet:
    """With addresses: scapy would ask the network for them."""
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", **fields)


class Ends(NamedTuple):
    """Who sends to whom."""

    source: str
    source_port: int
    destination: str
    destination_port: int

    @property
    def swapped(self) -> "Ends":
        return Ends(self.destination, self.destination_port, self.source, self.source_port)


def ip(source: str, destination: str, **fields: Any) -> Packet:
    return IPv6(src=source, dst=destination, **fields) if ":" in source else IP(src=source, dst=destination, **fields)


def segment(between: Ends, flags: str = "S", payload: bytes = b"", **fields: Any) -> Packet:
    tcp = TCP(sport=between.source_port, dport=between.destination_port, flags=flags)
    return frame() / ip(between.source, between.destination, **fields) / tcp / Raw(payload)


def datagram(between: Ends, payload: bytes = b"?", **fields: Any) -> Packet:
    udp = UDP(sport=between.source_port, dport=between.destination_port)
    return frame() / ip(between.source, between.destination, **fields) / udp / Raw(payload)


def ends(packet: Packet) -> Ends:
    layer = packet[IPv6] if IPv6 in packet else packet[IP]
    transport = packet[TCP] if TCP in packet else packet[UDP]
    return Ends(layer.src, transport.sport, layer.dst, transport.dport)


def has_right_checksums(raw: bytes, first: type[Packet] = Ether) -> bool:
    """Would anybody who computes them anew come to the same bytes? A quoted TCP checksum may be cut off."""
    packet = first(raw)
    layer: Any = packet
    while layer:
        for name in ("chksum", "cksum"):
            if name in layer.fields and not isinstance(layer, TCPerror | UDPerror):
                delattr(layer, name)
        layer = layer.payload
    return bytes(packet) == raw
