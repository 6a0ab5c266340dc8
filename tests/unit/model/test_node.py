"""What a Node object says about the node."""

import pytest

from kbpf.model.address import Family
from kbpf.model.node import EXCLUSION_TAINT, is_eligible, node_addresses, pod_cidrs
from kbpf.model.objects import Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta, Taint
from tests.builders import node


def with_addresses(*pairs: tuple[str, str | None]) -> Node:
    return Node(ObjectMeta("n1"), status=NodeStatus([NodeAddress(*pair) for pair in pairs]))


@pytest.mark.parametrize(
    ("pairs", "addresses"),
    [
        ([], ()),
        ([("InternalIP", "192.168.60.11")], ("192.168.60.11",)),
        ([("ExternalIP", "198.51.100.20"), ("InternalIP", "192.168.60.11")], ("192.168.60.11",)),
        ([("ExternalIP", "198.51.100.20")], ("198.51.100.20",)),
        ([("InternalIP", "fd60::11"), ("InternalIP", "192.168.60.11")], ("fd60::11", "192.168.60.11")),
        ([("InternalIP", "192.168.60.11"), ("ExternalIP", "2001:db8::11")], ("192.168.60.11", "2001:db8::11")),
        ([("InternalIP", "192.168.60.11"), ("InternalIP", "192.168.60.99")], ("192.168.60.11",)),
        ([("Hostname", "n1"), ("InternalDNS", "10.0.0.1"), ("InternalIP", None)], ()),
        ([("InternalIP", "x"), ("InternalIP", "192.168.060.11")], ("192.168.60.11",)),
    ],
)
def test_internal_addresses_come_first_and_one_of_each_family_counts(
    pairs: list[tuple[str, str | None]], addresses: tuple[str, ...]
):
    assert node_addresses(with_addresses(*pairs)) == addresses


@pytest.mark.parametrize(
    ("cidrs", "expected"),
    [
        ([], {}),
        (["10.42.1.0/24"], {Family.IPV4: "10.42.1.0/24"}),
        (["10.42.1.0/24", "fd42:1::/64", "10.43.0.0/16"], {Family.IPV4: "10.42.1.0/24", Family.IPV6: "fd42:1::/64"}),
        (["x", "10.42.1.7/24"], {Family.IPV4: "10.42.1.0/24"}),
    ],
)
def test_the_first_pod_range_of_each_family_counts(cidrs: list[str], expected: dict[Family, str]):
    assert pod_cidrs(node("n1", pod_cidrs=cidrs)) == expected


def test_a_node_that_says_nothing_is_no_problem():
    bare = Node(ObjectMeta("n1"))
    assert (node_addresses(bare), pod_cidrs(bare), is_eligible(bare)) == ((), {}, True)
    empty = Node(ObjectMeta("n1"), NodeSpec(), NodeStatus())
    assert (node_addresses(empty), pod_cidrs(empty), is_eligible(empty)) == ((), {}, True)


def test_a_node_that_is_being_removed_is_not_eligible():
    assert not is_eligible(Node(ObjectMeta("n1", deletion_timestamp="2026-01-01T00:00:00Z")))
    assert not is_eligible(Node(ObjectMeta("n1"), NodeSpec(taints=[Taint("other"), Taint(EXCLUSION_TAINT)])))
    assert is_eligible(Node(ObjectMeta("n1"), NodeSpec(taints=[Taint("other"), Taint(None)])))
