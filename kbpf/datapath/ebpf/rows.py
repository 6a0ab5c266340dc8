"""What the maps hold, as rows by key: observed, wanted, or the part of either that a plan is about.

`encode` fills it with what is wanted, `backend` with what it reads; `plan` compares two of them, `trace` walks through
one and `text` prints it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kbpf.datapath.ebpf.layout import (
    AFFINITY,
    BACKENDS,
    CONFIG,
    FRONTENDS,
    LOCAL_ADDR,
    MEMBERSHIP,
    NAMES,
    SERVICES,
    SLOTS,
    SOURCE_RANGES,
    WANTED,
)
from kbpf.datapath.ebpf.packing import MapSpec
from kbpf.datapath.ebpf.shapes import (
    AffinityKey,
    AffinityValue,
    BackendKey,
    BackendValue,
    ConfigValue,
    FrontendKey,
    FrontendValue,
    IndexKey,
    LocalAddrKey,
    LocalAddrValue,
    MembershipKey,
    MembershipValue,
    NameKey,
    NameValue,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SlotValue,
    SourceRangeKey,
    SourceRangeValue,
    WantedKey,
    WantedValue,
)

# Any: who walks over all maps looks at names, sizes and bytes only.
AnySpec = MapSpec[Any, Any]
AnyRows = dict[Any, Any]

SYNCED_MAPS: tuple[AnySpec, ...] = (
    CONFIG,
    LOCAL_ADDR,
    FRONTENDS,
    SERVICES,
    SLOTS,
    MEMBERSHIP,
    BACKENDS,
    AFFINITY,
    SOURCE_RANGES,
    WANTED,
    NAMES,
)
"""The maps that a sync reads or writes; the programs keep the others to themselves."""


@dataclass(slots=True)
class Rows:
    """One dictionary for each of SYNCED_MAPS, under the map's name."""

    config: dict[IndexKey, ConfigValue] = field(default_factory=dict)
    local_addr: dict[LocalAddrKey, LocalAddrValue] = field(default_factory=dict)
    frontends: dict[FrontendKey, FrontendValue] = field(default_factory=dict)
    services: dict[ServiceKey, ServiceValue] = field(default_factory=dict)
    slots: dict[SlotKey, SlotValue] = field(default_factory=dict)
    membership: dict[MembershipKey, MembershipValue] = field(default_factory=dict)
    backends: dict[BackendKey, BackendValue] = field(default_factory=dict)
    affinity: dict[AffinityKey, AffinityValue] = field(default_factory=dict)
    source_ranges: dict[SourceRangeKey, SourceRangeValue] = field(default_factory=dict)
    wanted: dict[WantedKey, WantedValue] = field(default_factory=dict)
    names: dict[NameKey, NameValue] = field(default_factory=dict)

    def of(self, spec: AnySpec) -> AnyRows:
        rows: AnyRows = getattr(self, spec.name)
        return rows

    def __iter__(self) -> Iterator[tuple[AnySpec, AnyRows]]:
        return ((spec, self.of(spec)) for spec in SYNCED_MAPS)
