"""The maps without a kernel: the same interface, the same refusals, the same halves that a failed batch leaves behind.

For tests, and for `kbpf render`, which must work without root. `tests/contract` runs one set of tests over these and
over real maps; where the two differ, this file is wrong.
"""

import errno
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from kbpf.datapath.ebpf import store, text
from kbpf.datapath.ebpf.capacity import Sizes, fitting
from kbpf.datapath.ebpf.layout import specs
from kbpf.datapath.ebpf.libbpf import ENOTSUPP
from kbpf.datapath.ebpf.maps import translated
from kbpf.datapath.ebpf.packing import MapSpec, MapType
from kbpf.datapath.ebpf.rows import AnySpec
from kbpf.datapath.interface import Answer, Support
from kbpf.errors import DatapathError, LoadFailed

Key = TypeVar("Key", bound=tuple[Any, ...])
Value = TypeVar("Value", bound=tuple[Any, ...])

Fails = Callable[[], bool]
"""Asked before every single write: does the kernel refuse this one?"""


def never() -> bool:
    return False


class NthWrite:
    """Fails the write with this number, counted from 1 over all maps that share it."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == 0


class ShareOfWrites:
    """Fails this share of all writes, by chance, the same way for the same seed."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self._random = random.Random(seed)

    def __call__(self) -> bool:
        return self._random.random() < self.share


class FakeMap(Generic[Key, Value]):
    def __init__(self, spec: MapSpec[Key, Value], fails: Fails = never) -> None:
        self.spec = spec
        self.fails = fails
        self.writes = 0
        """Elements written or deleted, one by one or in batches."""
        self._held: dict[bytes, bytes] = {}
        if spec.type is MapType.ARRAY:
            self._held = {number.to_bytes(4, "little"): bytes(spec.value.size) for number in range(spec.max_entries)}

    def close(self) -> None:
        pass

    def lookup(self, key: Key) -> Value | None:
        found = self._held.get(self._key(key))
        return None if found is None else self.spec.value.unpack(found)

    def update(self, rows: Mapping[Key, Value]) -> None:
        for key, value in [(self._key(key), self._value(value)) for key, value in rows.items()]:
            self._write("update", self._put, key, value)

    def delete(self, keys: Iterable[Key]) -> None:
        for key in map(self._key, keys):
            self._write("delete", self._remove, key)

    def entries(self) -> dict[Key, Value]:
        return {self.spec.key.unpack(key): self.spec.value.unpack(value) for key, value in self._held.items()}

    def size(self) -> int:
        return len(self._held)

    def batches(self) -> Iterator[dict[Key, Value]]:
        yield self.entries()

    def _key(self, key: Key) -> bytes:
        return _packed(self.spec.key.row, key, self.spec.key.pack, self.spec.name)

    def _value(self, value: Value) -> bytes:
        return _packed(self.spec.value.row, value, self.spec.value.pack, self.spec.name)

    def _write(self, operation: str, write: Callable[..., None], *packed: bytes) -> None:
        try:
            if self.fails():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            write(*packed)
        except OSError as error:
            raise translated(error, self.spec, operation) from error
        self.writes += 1

    def _put(self, key: bytes, value: bytes) -> None:
        if key not in self._held and len(self._held) >= self.spec.max_entries:
            if self.spec.type is not MapType.LRU_HASH:
                raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
            del self._held[next(iter(self._held))]
        self._held[key] = value

    def _remove(self, key: bytes) -> None:
        if self.spec.type is MapType.ARRAY:
            raise OSError(ENOTSUPP, "Operation not supported by the kernel")
        self._held.pop(key, None)


def _packed(kind: type[Any], row: Any, pack: Callable[[Any], bytes], name: str) -> bytes:
    """The kernel cannot tell one 16-byte struct from another; a test should."""
    if type(row) is not kind:
        raise TypeError(f"{name}: {row!r} is no {kind.__name__}")
    return pack(row)


class FakeMaps:
    """All maps that user space reads or writes, by the names that `maps.Maps` gives them."""

    def __init__(self, sizes: Sizes | None = None, fails: Fails = never) -> None:
        self._maps: dict[str, FakeMap[Any, Any]] = {
            spec.name: FakeMap(spec, fails) for spec in specs(sizes or {}) if spec.type is not MapType.SK_STORAGE
        }

    def __getattr__(self, name: str) -> FakeMap[Any, Any]:
        try:
            return self._maps[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def writes(self) -> int:
        return sum(each.writes for each in self._maps.values())

    def fail(self, fails: Fails) -> None:
        """From now on."""
        for each in self._maps.values():
            each.fails = fails

    def close(self) -> None:
        pass

    def dump(self) -> str:
        return text.dump(store.observe(self))

    def take_over(self, old: "FakeMaps | None") -> None:
        """Rows of maps of other sizes."""
        for name, each in old._maps.items() if old else ():
            if each.spec.type is not MapType.ARRAY:
                self._maps[name].update(each.entries())

    def load(self, dump: str) -> None:
        """Hold what a dump says, besides what is held already."""
        for spec, rows in text.parse(dump):
            self._maps[spec.name].update(rows)


class FakePrograms:
    """Programs and pins: maps come with the first load and go with `remove`; hooks want loaded programs."""

    def __init__(
        self, sizes: Sizes | None = None, *, first_sizes: Sizes | None = None, serves_packets: bool = False
    ) -> None:
        """Maps that `sizes` names do not grow; `first_sizes` are those of others, in place of the defaults."""
        self._fixed = frozenset(sizes or ())
        defaults = {spec.name: spec.max_entries for spec in specs({})}
        self._sizes: Sizes = {**defaults, **(first_sizes or {}), **(sizes or {})}
        self.maps: FakeMaps | None = None
        self.attached = False
        self.serves_packets = serves_packets
        self.has_programs = False
        self.load_failure: DatapathError | None = None
        self.compile_failure: DatapathError | None = None
        self.attach_failure: DatapathError | None = None
        self.open_failure: DatapathError | None = None

    @property
    def specs(self) -> tuple[AnySpec, ...]:
        return specs(self._sizes)

    def probe(self) -> Support:
        return Support(Answer.YES)

    def can_grow(self, need: Sizes) -> bool:
        return fitting(self._sizes, need, self._fixed) != self._sizes

    def load_ahead(self, need: Sizes, maps_are_made: Callable[[], None]) -> None:
        self.load(need)
        maps_are_made()
        self._compile()

    def load(self, need: Sizes) -> FakeMaps:
        if self.load_failure:
            raise self.load_failure
        if self.maps is None or self.can_grow(need):
            self._sizes = fitting(self._sizes, need, self._fixed)
            self.maps, old = FakeMaps(self._sizes), self.maps
            self.maps.take_over(old)
            self.attached = False
        return self.maps

    def _compile(self) -> None:
        if self.compile_failure:
            raise self.compile_failure
        self.has_programs = True

    def open(self) -> FakeMaps | None:
        if self.open_failure:
            raise self.open_failure
        return self.maps

    def attach(self) -> int:
        self._compile()
        if self.attach_failure:
            raise self.attach_failure
        if self.maps is None:
            raise LoadFailed("nothing is loaded")
        changed, self.attached = not self.attached, True
        return int(changed)

    def is_pinned(self) -> bool:
        return self.maps is not None and self.attached

    def is_attached(self) -> bool:
        return self.attached

    def detach_hooks(self) -> None:
        self.attached = False

    def remove(self) -> None:
        self.maps, self.has_programs, self.attached = None, False, False
