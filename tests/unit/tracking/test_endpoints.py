"""Merging the slices of one Service."""

import itertools

import pytest

from kbpf.model.address import Family
from kbpf.model.endpoint import Endpoint, EndpointsKey
from kbpf.model.names import Protocol, SliceName
from kbpf.model.objects import EndpointSlice, SliceEndpoint
from kbpf.tracking.endpoints import merge_slices
from kbpf.tracking.slice_record import slice_record
from tests.builders import draining, endpoint, endpoint_slice, slice_port, unusable

HTTP = EndpointsKey(Family.IPV4, "", Protocol.TCP)


def merge(*slices: EndpointSlice) -> dict[EndpointsKey, tuple[Endpoint, ...]]:
    records = []
    for each in slices:
        name = SliceName("shop", each.metadata.name or "")
        record, _ = slice_record(name, each, "n1")
        assert record is not None
        records.append((name, record))
    merged = merge_slices(records)
    for order in itertools.permutations(records):
        assert merge_slices(order) == merged
    return merged


def texts(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [f"{each.address}:{each.port}" for each in endpoints]


def test_no_slices_give_no_endpoints():
    assert merge() == {}


def test_a_slice_without_endpoints_still_says_that_the_port_exists():
    assert merge(endpoint_slice("web")) == {HTTP: ()}


def test_endpoints_are_multiplied_by_ports():
    merged = merge(endpoint_slice("web", "10.42.1.5", ports=[slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]))
    assert {(key.port, key.protocol.value): texts(found) for key, found in merged.items()} == {
        ("http", "TCP"): ["10.42.1.5:8080"],
        ("dns", "UDP"): ["10.42.1.5:5353"],
    }


def test_slices_of_one_service_may_carry_one_port_name_with_different_numbers():
    merged = merge(
        endpoint_slice("web", "10.42.1.5", name="a", ports=[slice_port(8080)]),
        endpoint_slice("web", "10.42.2.5", name="b", ports=[slice_port(9090)]),
    )
    assert texts(merged[HTTP]) == ["10.42.1.5:8080", "10.42.2.5:9090"]


def test_slices_may_carry_one_port_name_each():
    merged = merge(
        endpoint_slice("web", "10.42.1.5", name="a", ports=[slice_port(8090, "p80")]),
        endpoint_slice("web", "10.42.1.5", name="b", ports=[slice_port(9090, "p81")]),
    )
    assert {key.port: texts(found) for key, found in merged.items()} == {
        "p80": ["10.42.1.5:8090"],
        "p81": ["10.42.1.5:9090"],
    }


def test_families_are_apart():
    merged = merge(endpoint_slice("web", "10.42.1.5"), endpoint_slice("web", "fd42::5", family="IPv6"))
    assert {key.family: texts(found) for key, found in merged.items()} == {
        Family.IPV4: ["10.42.1.5:8080"],
        Family.IPV6: ["fd42::5:8080"],
    }


def test_endpoints_are_sorted_as_text():
    merged = merge(endpoint_slice("web", "10.0.0.9", "10.0.0.10", "10.0.0.1", ports=[slice_port(80)]))
    assert texts(merged[HTTP]) == ["10.0.0.10:80", "10.0.0.1:80", "10.0.0.9:80"]


def test_one_address_with_two_ports_is_two_endpoints():
    merged = merge(
        endpoint_slice("web", "192.168.60.12", name="a", ports=[slice_port(8080)]),
        endpoint_slice("web", "192.168.60.12", name="b", ports=[slice_port(8081)]),
    )
    assert texts(merged[HTTP]) == ["192.168.60.12:8080", "192.168.60.12:8081"]


def test_two_spellings_of_an_address_are_one_endpoint():
    assert texts(merge(endpoint_slice("web", "10.42.1.5", "10.42.01.005"))[HTTP]) == ["10.42.1.5:8080"]


RANKED = [
    endpoint("10.42.1.5", "n1"),
    endpoint("10.42.1.5", "n2"),
    endpoint("10.42.1.5", "n1", ready=True, serving=False),
    endpoint("10.42.1.5", "n1", ready=False, serving=True),
    unusable("10.42.1.5", "n1"),
    unusable("10.42.1.5", "n2"),
    endpoint("10.42.1.5", "n1", ready=True, serving=True, terminating=True),
    draining("10.42.1.5", "n1"),
    draining("10.42.1.5", "n2"),
    endpoint("10.42.1.5", "n1", ready=False, serving=False, terminating=True),
]
"""From the most to the least preferred: not terminating, ready, serving, local."""


@pytest.mark.parametrize(("better", "worse"), list(itertools.combinations(RANKED, 2)))
def test_the_better_of_two_copies_counts_wherever_it_stands(better: SliceEndpoint, worse: SliceEndpoint):
    (expected,) = merge(endpoint_slice("web", better))[HTTP]
    for first, second in ((better, worse), (worse, better)):
        assert merge(endpoint_slice("web", first, second))[HTTP] == (expected,)
        two = merge(endpoint_slice("web", first, name="a"), endpoint_slice("web", second, name="b"))
        assert two[HTTP] == (expected,)


def test_equal_copies_fall_to_the_lowest_slice_name():
    merged = merge(
        endpoint_slice("web", endpoint("10.42.1.5", zones=["zb"]), name="b"),
        endpoint_slice("web", endpoint("10.42.1.5", zones=["za"]), name="a"),
    )
    assert [each.zone_hints for each in merged[HTTP]] == [{"za"}]
