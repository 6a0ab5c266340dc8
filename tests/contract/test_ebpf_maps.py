"""One set of tests over maps without a kernel and over the kernel's: what `backend` relies on holds for both."""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from kbpf.datapath.ebpf import layout, libbpf
from kbpf.datapath.ebpf.fake import FakeMap
from kbpf.datapath.ebpf.maps import BpfMap
from kbpf.datapath.ebpf.packing import MapSpec
from kbpf.datapath.ebpf.shapes import (
    AffinityKey,
    AffinityValue,
    BackendKey,
    BackendValue,
    ConfigValue,
    IndexKey,
    SourceRangeKey,
    SourceRangeValue,
)
from kbpf.errors import MapError, MapFull
from kbpf.model.address import Address, packed

MakeMap = Callable[..., Any]


class _CreateOptions(ctypes.Structure):
    """The beginning of libbpf's bpf_map_create_opts."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("btf_fd", ctypes.c_uint32),
        ("btf_key_type_id", ctypes.c_uint32),
        ("btf_value_type_id", ctypes.c_uint32),
        ("btf_vmlinux_value_type_id", ctypes.c_uint32),
        ("inner_map_fd", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
    ]


def real_map(spec: MapSpec[Any, Any]) -> BpfMap[Any, Any]:
    options = _CreateOptions(sz=ctypes.sizeof(_CreateOptions), map_flags=spec.flags)
    fd = libbpf.library().bpf_map_create(
        int(spec.type), spec.name.encode(), spec.key.size, spec.value.size, spec.max_entries, ctypes.byref(options)
    )
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return BpfMap(spec, fd)


@pytest.fixture(params=["fake", pytest.param("kernel", marks=pytest.mark.root)])
def make(request: pytest.FixtureRequest) -> Iterator[MakeMap]:
    made = []

    def make(spec: MapSpec[Any, Any], max_entries: int | None = None) -> Any:
        sized = replace(spec, max_entries=max_entries or spec.max_entries)
        made.append(FakeMap(sized) if request.param == "fake" else real_map(sized))
        return made[-1]

    yield make
    for each in made:
        each.close()


def backend_row(number: int, variant: int) -> tuple[BackendKey, BackendValue]:
    return BackendKey(number), BackendValue(packed(Address("10.42.1.5")), variant, 6, number)


def source_range_row(number: int, variant: int) -> tuple[SourceRangeKey, SourceRangeValue]:
    return SourceRangeKey(160, number, packed(Address("10.42.1.5"))), SourceRangeValue(variant)


class Kind(NamedTuple):
    """Maps that the kernel takes rows for in another way."""

    spec: MapSpec[Any, Any]
    row: Callable[[int, int], tuple[Any, Any]]
    full: str
    """What is said when there is no room among three."""

    def rows(self, *numbers: int, variant: int = 1) -> dict[Any, Any]:
        return dict(self.row(number, variant) for number in numbers)


KINDS = [
    pytest.param(
        Kind(layout.BACKENDS, backend_row, "backends (3 entries): no room: raise --bpf-backend-entries"), id="hash"
    ),
    pytest.param(
        Kind(
            layout.SOURCE_RANGES,
            source_range_row,
            "source_ranges (3 entries): no room: raise --bpf-source-range-entries",
        ),
        id="trie",
    ),
]
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_rows_that_were_written_are_read(make: MakeMap, kind: Kind):
    held = make(kind.spec)
    held.update(kind.rows(1, 2, 3))
    assert held.entries() == kind.rows(1, 2, 3)
    assert {key: held.lookup(key) for key in kind.rows(2)} == kind.rows(2)
    assert [held.lookup(key) for key in kind.rows(4)] == [None]


@each_kind
def test_a_row_is_replaced(make: MakeMap, kind: Kind):
    held = make(kind.spec)
    held.update(kind.rows(1, 2))
    held.update(kind.rows(2, variant=2))
    assert held.entries() == kind.rows(1) | kind.rows(2, variant=2)


@each_kind
def test_nothing_to_write_and_an_empty_map_are_no_errors(make: MakeMap, kind: Kind):
    held = make(kind.spec)
    held.update({})
    held.delete([])
    assert held.entries() == {}


@each_kind
def test_deleting_what_is_not_there_is_no_error_and_the_rest_of_the_batch_goes(make: MakeMap, kind: Kind):
    held = make(kind.spec)
    held.update(kind.rows(1, 2, 3))
    held.delete(kind.rows(9, 1, 8, 3, 7))
    assert held.entries() == kind.rows(2)


@each_kind
def test_more_rows_than_one_batch_are_read_whole(make: MakeMap, kind: Kind):
    held = make(kind.spec, 65_536)
    rows = kind.rows(*range(1, 20_001))
    held.update(rows)
    assert held.entries() == rows
    held.delete(rows)
    assert held.entries() == {}


@each_kind
def test_a_full_map_refuses_a_new_row_and_keeps_what_the_batch_wrote_before(make: MakeMap, kind: Kind):
    held = make(kind.spec, 3)
    held.update(kind.rows(1, 2))
    with pytest.raises(MapFull, match=re.escape(kind.full)):
        held.update(kind.rows(3, 4, 5))
    assert held.entries() == kind.rows(1, 2, 3)


@each_kind
def test_a_full_map_takes_a_new_value_for_a_row_it_has(make: MakeMap, kind: Kind):
    held = make(kind.spec, 2)
    held.update(kind.rows(1, 2))
    held.update(kind.rows(1, 2, variant=2))
    assert held.entries() == kind.rows(1, 2, variant=2)


def test_an_lru_map_makes_room_itself(make: MakeMap):
    held = make(layout.AFFINITY, 512)
    rows = {AffinityKey(number.to_bytes(16, "big"), 1): AffinityValue(number, 1, 1) for number in range(5_000)}
    held.update(rows)
    assert 0 < len(held.entries()) <= 512
    assert held.entries().items() <= rows.items()


def test_an_array_has_all_its_rows_from_the_beginning_and_loses_none(make: MakeMap):
    held = make(layout.CONFIG)
    assert held.entries() == {IndexKey(0): ConfigValue(0, 0, 0)}
    held.update({IndexKey(0): ConfigValue(7, 1, 2)})
    assert held.lookup(IndexKey(0)) == ConfigValue(7, 1, 2)
    with pytest.raises(MapError, match="config: delete failed"):
        held.delete([IndexKey(0)])
    with pytest.raises(MapFull, match="config"):
        held.update({IndexKey(1): ConfigValue(7, 1, 2)})
