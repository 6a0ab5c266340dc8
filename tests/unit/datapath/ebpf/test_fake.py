"""What the maps without a kernel have beside the contract: text, failures on purpose, and rows of the wrong kind."""

import pytest

from kbpf.datapath.ebpf.fake import FakeMap, FakeMaps, NthWrite, ShareOfWrites
from kbpf.datapath.ebpf.layout import BACKENDS
from kbpf.datapath.ebpf.shapes import BackendKey, BackendValue, ServiceKey
from kbpf.errors import MapError
from tests.builders import endpoint_slice, service, table_of
from tests.ebpf_node import EbpfNode


def backends(*numbers: int) -> dict[BackendKey, BackendValue]:
    return {BackendKey(number): BackendValue(bytes(16), 80, 6, number) for number in numbers}


def test_a_dump_can_be_loaded_into_other_maps():
    node = EbpfNode()
    node.sync(table_of(service("web"), endpoint_slice("web", "10.42.1.5")))
    other = FakeMaps()
    other.load(node.maps.dump())
    assert other.dump() == node.maps.dump()
    assert other.writes == len(node.maps.dump().splitlines())


def test_the_nth_write_fails_once_and_what_came_before_stands():
    held = FakeMap(BACKENDS, NthWrite(3))
    with pytest.raises(MapError, match="backends: update failed: Input/output error"):
        held.update(backends(1, 2, 3, 4))
    assert held.entries() == backends(1, 2)
    held.update(backends(3, 4))
    assert held.entries() == backends(1, 2, 3, 4)


def test_a_share_of_writes_fails_the_same_way_for_the_same_seed():
    def failures(seed: int) -> list[bool]:
        fails = ShareOfWrites(0.5, seed)
        return [fails() for _ in range(20)]

    assert failures(1) == failures(1) != failures(2)
    assert {*failures(1)} == {True, False}


def test_a_row_of_another_map_is_refused_although_its_bytes_would_fit():
    with pytest.raises(TypeError, match="backends"):
        FakeMap(BACKENDS).delete([ServiceKey(1)])


def test_there_is_no_map_of_another_name():
    with pytest.raises(AttributeError):
        _ = FakeMaps().tables
