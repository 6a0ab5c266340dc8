"""An endpoint: one address and port with its three API conditions, ready to be judged by the policy."""

from typing import NamedTuple

import msgspec

from kbpf.model.address import Address, Family
from kbpf.model.names import Protocol


class EndpointsKey(NamedTuple):
    """What a service port and its endpoints have in common within one Service: never a port number."""

    family: Family
    port: str
    protocol: Protocol


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    address: Address
    port: int
    is_local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hints: frozenset[str] = frozenset()
    node_hints: frozenset[str] = frozenset()
