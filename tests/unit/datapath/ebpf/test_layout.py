"""The Python half of the contract: rows survive packing, and the numbers have the names that bpf/types.h gives them."""

import re
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import layout, shapes
from kbpf.datapath.ebpf.layout import ALL_MAPS, FRONTENDS, SERVICES, TRANSLATION
from kbpf.datapath.ebpf.shapes import FrontendKey, ServiceValue, Translation
from kbpf.model.address import Address, Family, packed

TYPES_H = (Path(__file__).parents[4] / "bpf" / "types.h").read_text()


def enumeration(name: str) -> dict[str, int]:
    body = re.search(rf"^enum {name} {{(.*?)}};", TYPES_H, re.DOTALL | re.MULTILINE)
    assert body, f"bpf/types.h has no enum {name}"
    return {member: int(number) for member, number in re.findall(r"(\w+) = (\d+)", body[1])}


@pytest.mark.parametrize(
    ("c_name", "prefix", "numbers"),
    [
        ("kind", "KIND_", shapes.Kind),
        ("view", "VIEW_", shapes.View),
        ("verdict", "VERDICT_", shapes.Verdict),
        ("frontend_flag", "FRONTEND_", shapes.FrontendFlag),
        ("defer_reason", "DEFER_", shapes.DeferReason),
        ("local_flag", "LOCAL_", shapes.LocalFlag),
        ("config_flag", "CONFIG_", shapes.ConfigFlag),
        ("flow_direction", "FLOW_", shapes.FlowDirection),
        ("flow_seen", "SEEN_", shapes.FlowSeen),
        ("flow_flag", "FLOW_", shapes.FlowFlag),
    ],
)
def test_numbers_have_the_same_names_in_c(c_name: str, prefix: str, numbers: type[IntEnum | IntFlag]) -> None:
    assert enumeration(c_name) == {prefix + number.name: number.value for number in numbers}


def test_reasons_have_the_same_names_in_c_and_each_has_a_counter() -> None:
    reasons = enumeration("reason")
    assert reasons.pop("REASON_COUNT") == layout.STATS.max_entries == layout.PACKET_STATS.max_entries
    assert reasons == {f"REASON_{reason.name}": reason.value for reason in shapes.Reason}


def test_node_port_keys_are_the_unspecified_addresses_so_that_families_do_not_meet() -> None:
    unspecified = {Family.IPV4: packed(Address("0.0.0.0")), Family.IPV6: packed(Address("::"))}
    assert unspecified == shapes.NODE_PORT_ADDRESS


def test_a_frontend_key_holds_its_port_in_network_order_and_a_zero_pad() -> None:
    key = FrontendKey(packed(Address("10.96.0.10")), 53, 17)
    raw = FRONTENDS.key.pack(key)
    assert raw[16:] == bytes((0, 53, 17, 0))
    assert FRONTENDS.key.unpack(raw) == key


def test_a_service_value_keeps_generation_and_counts_in_the_first_eight_bytes() -> None:
    names = [member.name for member in SERVICES.value.members if member.offset < 8]
    assert names == ["generation", "n_cluster", "n_local"]
    value = ServiceValue(7, 3, 1, 42, 10800)
    assert SERVICES.value.unpack(SERVICES.value.pack(value)) == value


def test_both_ports_of_a_translation_are_in_network_order() -> None:
    row = Translation(bytes(16), bytes(16), 80, 8080, 1, 2, 3)
    raw = TRANSLATION.pack(row)
    assert raw[32:36] == bytes((0, 80, 0x1F, 0x90))
    assert TRANSLATION.unpack(raw) == row


def test_many_rows_unpack_in_order() -> None:
    rows = [ServiceValue(number, 1, 0, number, 0) for number in range(5)]
    assert SERVICES.value.unpack_all(b"".join(map(SERVICES.value.pack, rows))) == rows


def test_map_names_fit_the_kernel_and_are_unique() -> None:
    names = [spec.name for spec in ALL_MAPS]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 15 for name in names)
