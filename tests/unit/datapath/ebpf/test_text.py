"""Maps as text: people read it, tests write it, and nothing is lost on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbpf.datapath.ebpf import text
from kbpf.datapath.ebpf.ids import backend_address
from kbpf.datapath.ebpf.layout import AFFINITY
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    AffinityKey,
    AffinityValue,
    BackendKey,
    BackendValue,
    FrontendKey,
    FrontendValue,
    LocalAddrKey,
    LocalAddrValue,
    SlotKey,
    SlotValue,
)
from kbpf.model.address import Address, packed

TEN, FD = packed(Address("10.96.0.10")), packed(Address("fd96::10"))


def test_rows_are_sorted_one_a_line_with_names_for_numbers():
    rows = Rows(
        backends={
            BackendKey(10): BackendValue(FD, 8080, 17, 10),
            BackendKey(9): BackendValue(TEN, 80, 6, 9),
        },
        local_addr={LocalAddrKey(packed(Address("127.0.0.1"))): LocalAddrValue(3)},
        frontends={FrontendKey(TEN, 80, 6): FrontendValue(TEN, 80, 6, 2, 0, 1, 7, 1, 0, 0, 1)},
    )
    assert text.dump(rows) == (
        "local_addr address=127.0.0.1 -> flags=NODE_PORT|LOOPBACK\n"
        "frontends address=10.96.0.10 port=80 protocol=TCP -> kind=NODE_PORT service_id=0 flags=DEFER_SOCKETS"
        " defer_reason=EXTERNAL internal_view=LOCAL internal_verdict=REJECT external_view=CLUSTER"
        " external_verdict=DROP\n"
        "backends id=9 -> address=10.96.0.10 port=80 protocol=TCP\n"
        "backends id=10 -> address=fd96::10 port=8080 protocol=UDP\n"
    )


def test_a_value_that_belongs_to_another_key_shows_it():
    place = backend_address(packed(Address("10.42.1.7")), 53, 17)
    rows = Rows(slots={SlotKey(1, 2, 0, 0): SlotValue(1, 9, 7, place)})
    assert text.dump(rows) == (
        "slots service_id=1 generation=2 view=CLUSTER position=0 -> generation=9 backend_id=7"
        " backend=10.42.1.7:53/UDP\n"
    )


bytes16 = st.binary(min_size=16, max_size=16)
byte, half, word = st.integers(0, 255), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
places = st.builds(backend_address, bytes16, half, byte)
rows = st.builds(
    Rows,
    frontends=st.dictionaries(
        st.builds(FrontendKey, bytes16, half, byte),
        st.builds(FrontendValue, bytes16, half, byte, byte, word, byte, byte, byte, byte, byte, byte),
    ),
    slots=st.dictionaries(st.builds(SlotKey, word, word, half, half), st.builds(SlotValue, word, word, word, places)),
    backends=st.dictionaries(st.builds(BackendKey, word), st.builds(BackendValue, bytes16, half, byte, word)),
    local_addr=st.dictionaries(st.builds(LocalAddrKey, bytes16), st.builds(LocalAddrValue, word)),
    affinity=st.dictionaries(st.builds(AffinityKey, bytes16, word), st.builds(AffinityValue, word, word, word)),
)


@given(rows)
def test_any_rows_survive_the_way_through_text(rows: Rows):
    assert text.parse(text.dump(rows)) == rows


@pytest.mark.parametrize(
    "line",
    ["", "tables id=1 -> id=1", "backends id=one -> address=10.0.0.1", "backends id=1", "backends id=1 -> colour=red"],
)
def test_a_line_that_is_no_row_is_named(line: str):
    with pytest.raises(ValueError, match="not a row of a map") as raised:
        text.parse(f"services id=1 -> generation=1 n_cluster=0 n_local=0 affinity_timeout_s=0\n{line}\n")
    assert repr(line) in str(raised.value)


def test_a_key_alone_has_a_line_too():
    assert text.key_line(AFFINITY, AffinityKey(TEN, 3)) == "affinity client=10.96.0.10 service_id=3"
