"""How large the maps must be. Pure: `backend` asks with what a sync needs, `programs` makes the maps as large.

Maps whose rows are user space's own grow when they must, by doubling, so that a cluster that grows steadily seldom
replaces them; they never shrink under a running cluster. A size that was set by option stays.
"""

from collections.abc import Mapping, Set

from kbpf.datapath.ebpf.layout import (
    BACKENDS,
    FRONTENDS,
    MEMBERSHIP,
    SERVICES,
    SLOTS,
    SOURCE_RANGES,
)
from kbpf.datapath.ebpf.room import RESERVED
from kbpf.datapath.ebpf.sizes import DEFAULT_ENTRIES, GROWING
from kbpf.model.names import Protocol
from kbpf.model.table import Backend, ServiceTable

HEAD_ROOM = 2
LIMIT = 2**22
"""Entries; what needs more is left to iptables."""

Sizes = Mapping[str, int]
"""Entries by map name."""


def demand(table: ServiceTable) -> dict[str, int]:
    """The rows of all service ports, without those of a change; a frontend that several claim counts for each."""
    frontends = services = endpoints = kept = ranges = 0
    backends: dict[Protocol, set[Backend]] = {protocol: set() for protocol in Protocol}
    for port in table:
        frontends += len(port.frontends)
        services += 1
        endpoints += len(port.cluster) + len(port.local)
        kept += len(port.kept)
        ranges += len(port.source_ranges)
        backends[port.protocol].update(port.cluster, port.local, port.kept)
    return {
        FRONTENDS.name: frontends,
        SERVICES.name: services,
        SLOTS.name: endpoints,
        MEMBERSHIP.name: endpoints + kept,
        BACKENDS.name: sum(map(len, backends.values())),
        SOURCE_RANGES.name: ranges,
    }


def fitting(sizes: Sizes, need: Sizes, fixed: Set[str]) -> dict[str, int]:
    """`sizes` with those maps larger that have no room for `need` and may grow."""
    wanted = {
        name: _size(count, DEFAULT_ENTRIES[name])
        for name, count in need.items()
        if name in GROWING - fixed and count + RESERVED > sizes.get(name, 0)
    }
    return {**sizes, **{name: size for name, size in wanted.items() if size > sizes.get(name, 0)}}


def _size(count: int, least: int) -> int:
    power_of_two = 1 << (HEAD_ROOM * count - 1).bit_length()
    return min(max(power_of_two, least), LIMIT)
