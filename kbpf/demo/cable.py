"""A point-to-point cable from a host to a guest: a node to its pod, or the network to a node.

The guest has its addresses alone (/32, /128) and a default route to the gateway; the host holds the gateway's address
on its end and a route to each address of the guest, as many network plugins do it. No bridge, no shared subnet.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kbpf.demo.namespaces import Namespace, ip_batch


class Pair(NamedTuple):
    """An IPv4 and an IPv6 address of one thing."""

    v4: str
    v6: str

    def like(self, address: str) -> str:
        """The one of the same family as `address`."""
        return self.v6 if ":" in address else self.v4


def assign(address: str, device: str) -> str:
    """The line that gives a device an address, without waiting for the kernel to look for duplicates on IPv6."""
    return f"addr add {address} dev {device}{' nodad' if ':' in address else ''}"


def plug(
    host: Namespace, host_device: str, guest: Namespace, addresses: Sequence[str], gateway: Pair, source: Pair
) -> None:
    """Connect `guest` with `host`; what the host sends to the guest by itself comes from `source`."""
    ip_batch(f"link add {host_device} netns {host.name} type veth peer name eth0 netns {guest.name}")
    host.ip(*_host_lines(host_device, addresses, gateway, source))
    guest.ip(*_guest_lines(addresses, gateway))


def _host_lines(device: str, addresses: Sequence[str], gateway: Pair, source: Pair) -> list[str]:
    # Scope link keeps the kernel from choosing the gateway's address as a source, masqueraded packets included.
    return [
        f"link set {device} up",
        *(f"{assign(address, device)} scope link" for address in gateway),
        *(f"route add {address} dev {device} src {source.like(address)}" for address in addresses),
    ]


def _guest_lines(addresses: Sequence[str], gateway: Pair) -> list[str]:
    families = sorted({":" in address for address in addresses})
    gateways = [gateway.v6 if is_ipv6 else gateway.v4 for is_ipv6 in families]
    return [
        "link set eth0 up",
        *(assign(address, "eth0") for address in addresses),
        *(f"route add {address} dev eth0" for address in gateways),
        *(f"route add default via {address} dev eth0" for address in gateways),
    ]
