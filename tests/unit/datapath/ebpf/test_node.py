"""What the programs are told of the node."""

import pytest

from kbpf.datapath.ebpf.node import NodeSettings, NodeState, node_rows, says_apart, stand_apart
from kbpf.datapath.ebpf.shapes import ConfigFlag, FrontendKey, IndexKey, LocalAddrKey, LocalFlag, SourceRangeKey
from kbpf.model.address import Address, Family, packed

SETTINGS = NodeSettings(7, frozenset({Family.IPV4}), ("10.42.0.0/16",), 0x8000, 31, 121)
LOCAL = {
    Address("127.0.0.1"): LocalFlag.LOOPBACK | LocalFlag.NODE_PORT,
    Address("169.254.1.1"): LocalFlag.NODE_PORT,
    Address("192.168.60.11"): LocalFlag.NODE_PORT | LocalFlag.PRIMARY,
}


def test_the_node_address_is_the_primary_one_and_unknown_without_one():
    config = node_rows(SETTINGS, NodeState(LOCAL)).config[IndexKey(0)]
    assert config.node_address4 == packed(Address("192.168.60.11"))
    assert config.node_address6 == bytes(16)


def test_the_flags_say_where_pods_are_detected_and_whether_the_rule_is_there():
    [without] = node_rows(SETTINGS, NodeState(LOCAL)).config.values()
    [with_rule] = node_rows(SETTINGS, NodeState(LOCAL, (3, 4), masquerades=True)).config.values()
    assert without.flags == ConfigFlag.DETECTS_PODS4
    assert with_rule.flags == ConfigFlag.DETECTS_PODS4 | ConfigFlag.MASQUERADES
    assert (with_rule.next_service_id, with_rule.next_backend_id) == (3, 4)
    assert (with_rule.masquerade_mark, with_rule.udp_timeout_s, with_rule.udp_stream_timeout_s) == (0x8000, 31, 121)


def test_pods_have_a_source_range_of_no_service():
    rows = node_rows(SETTINGS, NodeState(LOCAL))
    assert list(rows.source_ranges) == [SourceRangeKey(32 + 96 + 16, 0, packed(Address("10.42.0.0")))]
    assert set(rows.local_addr) == {LocalAddrKey(packed(address)) for address in LOCAL}


def test_the_programs_are_told_that_frontends_stand_apart():
    rows = node_rows(SETTINGS, NodeState(LOCAL, stands_apart=True))
    assert says_apart(rows)
    assert rows.config[IndexKey(0)].flags == ConfigFlag.DETECTS_PODS4 | ConfigFlag.STANDS_APART
    assert not says_apart(node_rows(SETTINGS, NodeState(LOCAL)))


@pytest.mark.parametrize(
    ("address", "is_apart"),
    [("10.96.0.10", True), ("0.0.0.0", True), ("192.168.60.11", False), ("127.0.0.9", False), ("fd96::a", True)],
)
def test_a_frontend_on_an_address_of_this_node_does_not_stand_apart(address: str, is_apart: bool):
    frontends = [FrontendKey(packed(Address(each)), 53, 17) for each in ("10.96.0.1", address)]
    assert stand_apart(frontends, LOCAL) is is_apart
