"""The pinned maps, typed and in batches.

`BpfMap` moves rows in packed batches: a hundred thousand entries take about a tenth of a second. It opens a pin only
when the kernel says of the map what its specification says; a wrong size would let the kernel write past our buffers.
`Maps` is the whole set, opened by the backend and filled in the order that `bpf/README.md` gives.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from kbpf.datapath.ebpf import layout, libbpf, shapes
from kbpf.datapath.ebpf.packing import MapSpec, MapType
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.transfer import Packed, transfer_of
from kbpf.errors import MapError, MapFull

Key = TypeVar("Key", bound=tuple[Any, ...])
Value = TypeVar("Value", bound=tuple[Any, ...])


def translated(error: OSError, spec: MapSpec[Any, Any], operation: str) -> MapError:
    """The kernel's errno in words that name the map and what to do."""
    if error.errno in (errno.E2BIG, errno.ENOSPC, errno.ENOMEM):
        return MapFull(f"{spec.name} ({spec.max_entries} entries): no room: raise {spec.size_flag}")
    return MapError(f"{spec.name}: {operation} failed: {error.strerror}")


def mismatch(spec: MapSpec[Any, Any], info: libbpf.MapInfo) -> str | None:
    """What the kernel says of a map and the specification does not, if anything."""
    wanted = (spec.type, spec.key.size, spec.value.size, spec.max_entries, spec.flags)
    found = (info.type, info.key_size, info.value_size, info.max_entries, info.flags)
    names = ("type", "key size", "value size", "max entries", "flags")
    differences = [f"{n} {f} instead of {w}" for n, w, f in zip(names, wanted, found, strict=True) if w != f]
    return ", ".join(differences) or None


def pinned_info(pin: Path) -> libbpf.MapInfo | None:
    """What the kernel says of a pinned map; None: nothing is pinned there. Raises OSError."""
    try:
        fd = libbpf.obj_get(pin)
    except FileNotFoundError:
        return None
    try:
        return libbpf.map_info(fd)
    finally:
        os.close(fd)


class BpfMap(Generic[Key, Value]):
    """One open map. Rows go in and come out; the bytes between are the layout's."""

    def __init__(self, spec: MapSpec[Key, Value], fd: int) -> None:
        self.spec = spec
        self._fd = fd
        self._transfer = transfer_of(spec.type)

    @classmethod
    def open(cls, spec: MapSpec[Key, Value], pin: Path) -> Self:
        try:
            fd = libbpf.obj_get(pin)
        except OSError as error:
            raise MapError(f"{spec.name}: cannot open {pin}: {error.strerror}") from error
        info = libbpf.map_info(fd)
        # Of any size: who made it may have been told another one.
        spec = replace(spec, max_entries=info.max_entries)
        opened = cls(spec, fd)
        difference = mismatch(spec, info)
        if difference:
            opened.close()
            raise MapError(f"{spec.name}: {pin} is another map: {difference}")
        return opened

    def pin(self, pin: Path) -> None:
        """Raises OSError."""
        with suppress(FileExistsError):
            libbpf.obj_pin(self._fd, pin)

    def is_pinned(self, pin: Path) -> bool:
        """Is it this map that is pinned there? Raises OSError."""
        info = pinned_info(pin)
        return info is not None and info.id == libbpf.map_info(self._fd).id

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def lookup(self, key: Key) -> Value | None:
        try:
            found = libbpf.map_lookup(self._fd, self.spec.key.pack(key), self.spec.value.size)
        except OSError as error:
            raise translated(error, self.spec, "lookup") from error
        return None if found is None else self.spec.value.unpack(found)

    def update(self, rows: Mapping[Key, Value]) -> None:
        """Write all rows. After an error some of them stand."""
        if not rows:
            return
        keys = self.spec.key.pack_all(rows.keys())
        values = self.spec.value.pack_all(rows.values())
        try:
            self._transfer.update(self._fd, keys, values, len(rows))
        except OSError as error:
            raise translated(error, self.spec, "update") from error

    def delete(self, keys: Iterable[Key]) -> None:
        """Remove the keys; one that is not there is no error, since an LRU map may have been faster."""
        try:
            self._transfer.delete(self._fd, [self.spec.key.pack(key) for key in keys])
        except OSError as error:
            raise translated(error, self.spec, "delete") from error

    def entries(self) -> dict[Key, Value]:
        """Everything in the map. Entries that others change meanwhile may be in or out."""
        result: dict[Key, Value] = {}
        for rows in self.batches():
            result.update(rows)
        return result

    def batches(self) -> Iterator[dict[Key, Value]]:
        """The same, a part at a time."""
        for packed in self._packed(self.spec.value.size):
            keys, values = self.spec.key.unpack_all(packed.keys), self.spec.value.unpack_all(packed.values)
            yield dict(zip(keys, values, strict=True))

    def size(self) -> int:
        """How many entries there are."""
        return sum(packed.size for packed in self._packed(self.spec.value.size))

    def _packed(self, value_size: int) -> Iterator[Packed]:
        try:
            yield from self._transfer.read(self._fd, self.spec.key.size, value_size, self.spec.max_entries)
        except OSError as error:
            raise translated(error, self.spec, "lookup") from error


class Counters(BpfMap[shapes.IndexKey, shapes.Counter]):
    """The per-CPU counters of "stats" or "packet_stats", summed."""

    def read(self) -> dict[shapes.Reason, int]:
        cpus = libbpf.possible_cpus()
        return {reason: self._sum(shapes.IndexKey(reason), cpus) for reason in shapes.Reason}

    def count(self, reason: shapes.Reason) -> int:
        return self._sum(shapes.IndexKey(reason), libbpf.possible_cpus())

    def _sum(self, key: shapes.IndexKey, cpus: int) -> int:
        per_cpu = libbpf.map_lookup(self._fd, self.spec.key.pack(key), self.spec.value.size * cpus) or b""
        return sum(counter.total for counter in self.spec.value.unpack_all(per_cpu))


class Maps(msgspec.Struct, frozen=True):
    """Every map. Some are the programs' own, and held only so that they can be pinned again."""

    frontends: BpfMap[shapes.FrontendKey, shapes.FrontendValue]
    services: BpfMap[shapes.ServiceKey, shapes.ServiceValue]
    slots: BpfMap[shapes.SlotKey, shapes.SlotValue]
    backends: BpfMap[shapes.BackendKey, shapes.BackendValue]
    membership: BpfMap[shapes.MembershipKey, shapes.MembershipValue]
    affinity: BpfMap[shapes.AffinityKey, shapes.AffinityValue]
    owners: BpfMap[shapes.IndexKey, shapes.OwnerValue]
    connections: BpfMap[shapes.IndexKey, shapes.Translation]
    sock: BpfMap[shapes.SockKey, shapes.SockValue]
    udp_conn: BpfMap[shapes.UdpConnKey, shapes.UdpConnValue]
    local_addr: BpfMap[shapes.LocalAddrKey, shapes.LocalAddrValue]
    config: BpfMap[shapes.IndexKey, shapes.ConfigValue]
    flows: BpfMap[shapes.FlowKey, shapes.FlowValue]
    fragments: BpfMap[shapes.FragmentKey, shapes.FragmentValue]
    source_ranges: BpfMap[shapes.SourceRangeKey, shapes.SourceRangeValue]
    wanted: BpfMap[shapes.WantedKey, shapes.WantedValue]
    names: BpfMap[shapes.NameKey, shapes.NameValue]
    choices: BpfMap[shapes.ChoiceKey, shapes.Counter]
    stats: Counters
    packet_stats: Counters

    @classmethod
    def open(cls, pins: Pins) -> Self:
        """Of whatever sizes they are."""
        opened: dict[str, Any] = {}
        try:
            for spec in layout.ALL_MAPS:
                kind = Counters if spec.type is MapType.PERCPU_ARRAY else BpfMap
                opened[spec.name] = kind.open(spec, pins.map(spec.name))
            return cls(**opened)
        except MapError:
            for each in opened.values():
                each.close()
            raise

    def pin(self, pins: Pins) -> None:
        """Where somebody removed a pin, the map with all that it holds is pinned again."""
        for name in self.__struct_fields__:
            getattr(self, name).pin(pins.map(name))

    def are_pinned(self, pins: Pins) -> bool:
        """Are these the maps that are pinned now? Raises OSError."""
        return all(getattr(self, name).is_pinned(pins.map(name)) for name in self.__struct_fields__)

    def close(self) -> None:
        for name in self.__struct_fields__:
            getattr(self, name).close()
