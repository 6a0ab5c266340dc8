"""Replaces pinned maps by larger ones, with all that they hold. The loader and `programs` call it in this order:

    set_aside     before a load: maps that are too small leave their place; programs in force go on with them
    carry_over    when the new maps are made: the rows go into them, under the same ids
    finish        new programs are in force: what old ones wrote meanwhile follows, and the old maps go
    take_back     instead, when the load failed

A process may die between any two of these, and the next one goes on: only rows that are missing are ever written.
"""

from collections.abc import Iterable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

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
    OWNERS,
    SERVICES,
    SLOTS,
    UDP_CONN,
    WANTED,
)
from kbpf.datapath.ebpf.maps import BpfMap
from kbpf.datapath.ebpf.packing import MapType
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.rows import AnySpec
from kbpf.datapath.ebpf.shapes import IndexKey

# Any: whatever the rows are, they are copied.
AnyMap = BpfMap[Any, Any]

_CARRIED = (MapType.HASH, MapType.LRU_HASH, MapType.LPM_TRIE)
_LISTS = frozenset(spec.name for spec in (FRONTENDS, SERVICES, SLOTS, BACKENDS, MEMBERSHIP))
"""Together they say who serves what."""
_SLOTS = frozenset((OWNERS.name, CONNECTIONS.name))
"""Arrays, in which the place of a row depends on how large they are."""
_STATE = _SLOTS | {spec.name for spec in (AFFINITY, UDP_CONN, FLOWS, FRAGMENTS, WANTED)}
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
    is_carried = spec.type in _CARRIED or spec.name in _SLOTS
    as_wanted = info._replace(max_entries=spec.max_entries)
    return is_carried and info.max_entries < spec.max_entries and maps.mismatch(spec, as_wanted) is None


def carry_over(pins: Pins, specs: Iterable[AnySpec]) -> None:
    """Nothing to do unless something was set aside and its successor is there."""
    with ExitStack() as opened:
        pairs = {}
        for spec in specs:
            places = pins.outgrown(spec.name), pins.map(spec.name)
            if all(place.exists() for place in places):
                pairs[spec.name] = _Pair(*(opened.enter_context(closing(AnyMap.open(spec, place))) for place in places))
        for name in pairs.keys() - _SLOTS:
            _copy(pairs[name])
        if pairs.keys() >= _SLOTS:
            _move(pairs[OWNERS.name], pairs[CONNECTIONS.name])


def finish(pins: Pins, specs: Iterable[AnySpec]) -> None:
    carry_over(pins, [spec for spec in specs if spec.name in _STATE])
    for old in pins.outgrown_maps.iterdir():
        old.unlink()


def take_back(pins: Pins) -> None:
    for old in pins.outgrown_maps.iterdir():
        pins.map(old.name).unlink(missing_ok=True)
        old.rename(pins.map(old.name))


class _Pair(NamedTuple):
    before: AnyMap
    after: AnyMap


def _copy(pair: _Pair) -> None:
    there = pair.after.entries().keys()
    for rows in pair.before.batches():
        pair.after.update({key: row for key, row in rows.items() if key not in there})


def _move(owners: _Pair, connections: _Pair) -> None:
    """Records into the places that their sockets' cookies give now. An owner comes last: it makes its record true."""
    size, records = owners.after.spec.max_entries, connections.before.entries()
    taken = {key for key, owner in owners.after.entries().items() if owner.socket_cookie}
    found = {
        IndexKey(owner.socket_cookie % size): (owner, records[key])
        for key, owner in owners.before.entries().items()
        if owner.socket_cookie
    }
    moving = {key: rows for key, rows in found.items() if key not in taken}
    connections.after.update({key: record for key, (_, record) in moving.items()})
    owners.after.update({key: owner for key, (owner, _) in moving.items()})
