"""Replaces pinned maps by larger ones, with all that they hold. The loader and `programs` call it in this order:

    set_aside     before a load: maps that are too small leave their place; programs in force go on with them
    carry_over    after it: their rows go into the new maps, under the same ids
    finish        new programs are in force: what old ones wrote meanwhile follows, and the old maps go
    take_back     instead, when the load failed

A process may die between any two of these, and the next one goes on: only rows that are missing are ever written.
"""

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from kbpf.datapath.ebpf import libbpf, maps
from kbpf.datapath.ebpf.layout import (
    AFFINITY,
    BACKENDS,
    CONNECTIONS,
    FLOWS,
    FRAGMENTS,
    FRONTENDS,
    MEMBERSHIP,
    NUMBERED_MAPS,
    SERVICES,
    SLOTS,
    UDP_CONN,
    WANTED,
)
from kbpf.datapath.ebpf.maps import BpfMap
from kbpf.datapath.ebpf.packing import MapType
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.rows import AnyRows, AnySpec
from kbpf.datapath.ebpf.shapes import IndexKey

# Any: whatever the rows are, they are copied.
AnyMap = BpfMap[Any, Any]

_CARRIED = (MapType.HASH, MapType.LRU_HASH, MapType.LPM_TRIE)
_LISTS = frozenset(spec.name for spec in (FRONTENDS, SERVICES, SLOTS, BACKENDS, MEMBERSHIP))
"""Together they say who serves what."""
_STATE = frozenset(spec.name for spec in (AFFINITY, CONNECTIONS, UDP_CONN, FLOWS, FRAGMENTS, WANTED))
"""What programs write."""


def set_aside(pins: Pins, specs: Iterable[AnySpec]) -> None:
    """A map that can neither be kept nor carried over is unpinned; without one list the others mean nothing."""
    carry_over(pins, specs)
    lost = set()
    for spec in specs:
        info = maps.pinned_info(pins.map(spec.name))
        if info is not None and _is_outgrown(spec, info):
            pins.map(spec.name).rename(pins.outgrown(spec.name))
        elif not pins.outgrown(spec.name).exists() and (info is None or maps.mismatch(spec, info)):
            lost.add(spec.name)
    if not lost.isdisjoint(_LISTS):
        lost |= NUMBERED_MAPS
    for name in lost:
        pins.map(name).unlink(missing_ok=True)
        pins.outgrown(name).unlink(missing_ok=True)


def _is_outgrown(spec: AnySpec, info: libbpf.MapInfo) -> bool:
    is_carried = spec.type in _CARRIED or spec.name == CONNECTIONS.name
    as_wanted = info._replace(max_entries=spec.max_entries)
    return is_carried and info.max_entries < spec.max_entries and maps.mismatch(spec, as_wanted) is None


def carry_over(pins: Pins, specs: Iterable[AnySpec]) -> None:
    """Nothing to do unless something was set aside and its successor is there."""
    for spec in specs:
        old, new = pins.outgrown(spec.name), pins.map(spec.name)
        if old.exists() and new.exists():
            with closing(AnyMap.open(spec, old)) as before, closing(AnyMap.open(spec, new)) as after:
                _copy(before, after)


def finish(pins: Pins, specs: Iterable[AnySpec]) -> None:
    carry_over(pins, [spec for spec in specs if spec.name in _STATE])
    for old in pins.outgrown_maps.iterdir():
        old.unlink()


def take_back(pins: Pins) -> None:
    for old in pins.outgrown_maps.iterdir():
        pins.map(old.name).unlink(missing_ok=True)
        old.rename(pins.map(old.name))


def _copy(before: AnyMap, after: AnyMap) -> None:
    if before.spec.name == CONNECTIONS.name:
        after.update(_replaced(before.entries(), after))
        return
    there = after.entries().keys()
    for rows in before.batches():
        after.update({key: row for key, row in rows.items() if key not in there})


def _replaced(rows: AnyRows, after: AnyMap) -> AnyRows:
    """Connections in the slots that their sockets' cookies give in the new table."""
    taken = {key for key, row in after.entries().items() if row.socket_cookie}
    found = {IndexKey(row.socket_cookie % after.spec.max_entries): row for row in rows.values() if row.socket_cookie}
    return {key: row for key, row in found.items() if key not in taken}
