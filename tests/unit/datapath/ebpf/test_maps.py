"""What the kernel refuses becomes an error that names the map; a pin that is another map is never opened."""

import errno
import os

import pytest

from kbpf.datapath.ebpf.layout import ALL_MAPS, FRONTENDS, LOCAL_ADDR, SERVICES, specs
from kbpf.datapath.ebpf.libbpf import MapInfo
from kbpf.datapath.ebpf.maps import Maps, mismatch, translated
from kbpf.errors import MapError, MapFull


def as_the_kernel_says(**changes: int) -> MapInfo:
    spec = SERVICES
    right = MapInfo(spec.type, 1, spec.key.size, spec.value.size, spec.max_entries, spec.flags)
    return right._replace(**changes)


@pytest.mark.parametrize("number", [errno.E2BIG, errno.ENOSPC, errno.ENOMEM])
def test_a_full_map_names_itself_its_size_and_the_option(number: int) -> None:
    error = translated(OSError(number, os.strerror(number)), FRONTENDS, "update")
    assert isinstance(error, MapFull)
    assert str(error) == "frontends (65536 entries): no room: raise --bpf-frontend-entries"


def test_another_refusal_keeps_the_kernels_word() -> None:
    error = translated(OSError(errno.EPERM, os.strerror(errno.EPERM)), SERVICES, "update")
    assert type(error) is MapError
    assert str(error) == "services: update failed: Operation not permitted"


def test_options_are_named_after_maps() -> None:
    assert LOCAL_ADDR.size_flag == "--bpf-local-addr-entries"
    assert SERVICES.size_flag == "--bpf-service-entries"


def test_a_map_as_specified_has_no_mismatch() -> None:
    assert mismatch(SERVICES, as_the_kernel_says()) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": 9}, "type 9 instead of 1"),
        ({"key_size": 8}, "key size 8 instead of 4"),
        ({"value_size": 24, "max_entries": 7}, "value size 24 instead of 16, max entries 7 instead of 65536"),
        ({"flags": 0}, "flags 0 instead of 1"),
    ],
)
def test_a_mismatch_says_what_differs(changes: dict[str, int], words: str) -> None:
    assert mismatch(SERVICES, as_the_kernel_says(**changes)) == words


def test_every_map_is_held() -> None:
    assert set(Maps.__struct_fields__) == {spec.name for spec in ALL_MAPS}


def test_sizes_are_set_by_map_name_and_default_otherwise() -> None:
    sized = {spec.name: spec.max_entries for spec in specs({"slots": 99})}
    assert sized.pop("slots") == 99
    assert sized == {spec.name: spec.max_entries for spec in ALL_MAPS if spec.name != "slots"}
