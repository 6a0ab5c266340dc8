"""What the maps hold against what they must hold: of everything, or of the services that changed."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from kbpf.datapath.ebpf import store
from kbpf.datapath.ebpf.adopt import adopt
from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.encode import Encoded
from kbpf.datapath.ebpf.installed import Change, Installed
from kbpf.datapath.ebpf.layout import AFFINITY, WANTED
from kbpf.datapath.ebpf.rows import AnySpec, Rows
from kbpf.datapath.ebpf.shapes import AffinityKey, AffinityValue, LocalFlag
from kbpf.datapath.ebpf.store import MapSet
from kbpf.model.address import Address
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable


class Difference(NamedTuple):
    """What the maps hold and must hold, as far as a sync looks, and the memory of what they then hold."""

    known: Rows
    wanted: Rows
    installed: Installed
    services: frozenset[ServiceName]
    """Those that were decided anew."""


class Memory(msgspec.Struct, frozen=True):
    """What the maps hold: the service ports, and the rows of no service (config, local addresses)."""

    installed: Installed
    node: Rows
    addresses: Mapping[Address, LocalFlag]
    """Of this node; a change of them brings a full sync."""

    def entries(self, spec: AnySpec) -> int:
        return self.installed.used[spec.name] + len(self.node.of(spec))


def full(
    maps: MapSet, table: ServiceTable, specs: Sequence[AnySpec], settings: DeferSettings, memory: Memory | None
) -> Difference:
    """`specs`: the maps with their sizes. Whatever the maps hold of services that are still there is kept in place."""
    observed = store.observe(maps)
    given = memory.installed.ids if memory else None
    installed = adopt(observed, table, specs, settings, given)
    change = installed.change(table, table.services)
    wanted = installed.everything()
    alive = {key.id for key in wanted.services}
    observed.affinity = {key: row for key, row in observed.affinity.items() if key.service_id not in alive}
    wanted.affinity = _moved(observed.affinity, change)
    wanted.wanted = {key: row for key, row in observed.wanted.items() if key.id in alive}
    return Difference(observed, wanted, installed, change.services)


def partial(maps: MapSet, memory: Memory, table: ServiceTable, dirty: Set[ServiceName]) -> Difference:
    """The maps are not read but for what clients leave there."""
    change = memory.installed.change(table, dirty)
    known = change.known(memory.installed.ids)
    known.config, known.local_addr = memory.node.config, memory.node.local_addr
    known.source_ranges.update(memory.node.source_ranges)
    known.affinity = _affinity_of_gone(maps, change)
    known.wanted = store.open_map(maps, WANTED).entries()
    wanted = change.wanted(memory.installed.ids)
    wanted.affinity = _moved(known.affinity, change)
    wanted.wanted = {key: row for key, row in known.wanted.items() if key.id not in change.gone_services}
    return Difference(known, wanted, memory.installed, change.services)


def _with_affinity(ports: Iterable[Encoded]) -> set[int]:
    return {each.service_id for each in ports if each.affinity_timeout_s}


def _affinity_of_gone(maps: MapSet, change: Change) -> dict[AffinityKey, AffinityValue]:
    """Rows that clients left of services that were removed, or have no affinity any more.

    Those of a removed backend stay: membership makes them void, and a program may be writing a new choice into one.
    """
    gone = _with_affinity(change.before) - _with_affinity(change.after)
    rows = store.open_map(maps, AFFINITY).entries() if gone else {}
    return {key: row for key, row in rows.items() if key.service_id in gone}


def _moved(rows: dict[AffinityKey, AffinityValue], change: Change) -> dict[AffinityKey, AffinityValue]:
    """A service port that gets another service id takes its clients along. Nobody writes under that id yet."""
    moved = change.moved_services
    return {
        key._replace(service_id=moved[key.service_id]): row._replace(service_id=moved[key.service_id])
        for key, row in rows.items()
        if key.service_id in moved
    }
