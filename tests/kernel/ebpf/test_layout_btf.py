"""The two copies of the contract: every struct in bpf/types.h has the members that layout.py says, by the kernel's BTF.

`make check` runs this file. It fails, and does not skip, when BCC is missing.
"""

from pathlib import Path
from typing import Any

import pytest

from kbpf.datapath.ebpf.layout import ALL_MAPS, SOCK, TRANSLATION
from kbpf.datapath.ebpf.packing import Layout, MapSpec
from kbpf.datapath.ebpf.pins import Pins
from tests.kernel.ebpf import btf

pytestmark = [pytest.mark.root, pytest.mark.kernels("ebpf")]


def compare(types: btf.Btf, number: int, layout: Layout[Any]) -> None:
    found = types.resolved(number)
    assert found.size == layout.size
    if found.kind == btf.STRUCT:
        assert found.name == layout.struct_name
        assert tuple(member for member, _ in types.members(number)) == layout.members


@pytest.mark.parametrize("spec", ALL_MAPS, ids=lambda spec: spec.name)
def test_keys_and_values_of_a_map_have_the_same_members_in_c(
    pins: Pins, programs: Path, spec: MapSpec[Any, Any]
) -> None:
    types = btf.of_pinned_map(pins.map(spec.name))
    compare(types.btf, types.key, spec.key)
    compare(types.btf, types.value, spec.value)


def test_a_sockets_records_have_the_same_members_in_c(pins: Pins, programs: Path) -> None:
    types = btf.of_pinned_map(pins.map(SOCK.name))
    numbers = {member.name: number for member, number in types.btf.members(types.value)}
    compare(types.btf, numbers["connected"], TRANSLATION)
