"""From EndpointSlice objects to the record that is compared and kept."""

import pytest

from kbpf.model.address import Family
from kbpf.model.endpoint import Endpoint
from kbpf.model.names import Protocol, ServiceName, SliceName
from kbpf.model.objects import (
    HEADLESS_LABEL,
    SERVICE_PROXY_NAME_LABEL,
    EndpointConditions,
    EndpointHints,
    EndpointSlice,
    Hint,
    ObjectMeta,
    SliceEndpoint,
)
from kbpf.tracking.slice_record import SliceRecord, slice_record
from tests.builders import endpoint, endpoint_slice, slice_port

NAME = SliceName("shop", "web-1")


def record_of(slice_: EndpointSlice, node_name: str = "n1") -> SliceRecord:
    record, problems = slice_record(NAME, slice_, node_name)
    assert problems == ()
    assert record is not None
    return record


def only(*endpoints: SliceEndpoint | str, family: str = "IPv4", node_name: str = "n1") -> Endpoint:
    (found,) = record_of(endpoint_slice("web", *endpoints, family=family), node_name).endpoints
    return found


def problems_of(slice_: EndpointSlice) -> list[str]:
    return [str(problem) for problem in slice_record(NAME, slice_, "n1")[1]]


def test_a_slice_belongs_to_the_service_its_label_names_in_its_own_namespace():
    record = record_of(endpoint_slice("victim/web", "10.42.1.5"))
    assert record.service == ServiceName("shop", "victim/web")


@pytest.mark.parametrize(
    "slice_",
    [
        endpoint_slice("web", "10.42.1.5", labels={HEADLESS_LABEL: ""}),
        endpoint_slice("web", "pod.example.net", family="FQDN"),
        endpoint_slice(None, "x", family="FQDN"),
    ],
)
def test_headless_and_name_slices_are_silently_none_of_ours(slice_: EndpointSlice):
    assert slice_record(NAME, slice_, "n1") == (None, ())


def test_a_slice_of_a_foreign_proxys_service_is_kept_and_matches_nothing():
    """So that the Service comes back at once when its label goes, in whatever order the two labels change."""
    assert record_of(endpoint_slice("web", "10.42.1.5", labels={SERVICE_PROXY_NAME_LABEL: "other"})).endpoints


@pytest.mark.parametrize("labels", [None, {}, {"kubernetes.io/service-name": ""}])
def test_a_slice_without_a_service_is_ignored_and_named(labels: dict[str, str] | None):
    slice_ = EndpointSlice(ObjectMeta("web-1", "shop", labels=labels), "IPv4")
    record, problems = slice_record(NAME, slice_, "n1")
    assert record is None
    assert [problem.field for problem in problems] == ["metadata.labels[kubernetes.io/service-name]"]


@pytest.mark.parametrize("family", ["", "ipv4", "IPv5", None])
def test_an_unknown_address_type_is_ignored_and_named(family: str | None):
    slice_ = EndpointSlice(ObjectMeta("web-1", "shop", labels={"kubernetes.io/service-name": "web"}), family)
    record, problems = slice_record(NAME, slice_, "n1")
    assert (record, [problem.field for problem in problems]) == (None, ["addressType"])


def test_null_lists_are_empty_lists():
    slice_ = EndpointSlice(ObjectMeta("n-1", "shop", labels={"kubernetes.io/service-name": "nul"}), "IPv4", None, None)
    assert record_of(slice_) == SliceRecord(ServiceName("shop", "nul"), Family.IPV4, (), ())


# -- ports -----------------------------------------------------------------------------------------------------------


def test_ports_keep_name_protocol_and_number():
    ports = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP"), slice_port(9, "", None)]
    assert record_of(endpoint_slice("web", ports=ports)).ports == (
        ("http", Protocol.TCP, 8080), ("dns", Protocol.UDP, 5353), ("", Protocol.TCP, 9),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("port", "field"),
    [
        (slice_port(8080, None), "ports[0].name"),
        (slice_port(None), "ports[0].port"),
        (slice_port(0), "ports[0].port"),
        (slice_port(65536), "ports[0].port"),
        (slice_port(-1), "ports[0].port"),
        (slice_port(80, "", "ICMP"), "ports[0].protocol"),
    ],
)
def test_an_impossible_port_is_skipped_and_named(port: object, field: str):
    slice_ = endpoint_slice("web", "10.42.1.5", ports=[port, slice_port(8080, "good")])  # type: ignore[list-item]
    record, problems = slice_record(NAME, slice_, "n1")
    assert record is not None
    assert [name for name, _, _ in record.ports] == ["good"]
    assert [problem.field for problem in problems] == [field]


# -- endpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, True, False])
@pytest.mark.parametrize("condition", ["ready", "serving", "terminating"])
def test_null_conditions_mean_ready_serving_and_not_terminating(condition: str, given: bool | None):
    found = only(endpoint("10.42.1.5", **{condition: given}))  # type: ignore[arg-type]
    expected = {"ready": True, "serving": True, "terminating": False} | ({} if given is None else {condition: given})
    assert {name: getattr(found, name) for name in expected} == expected


def test_missing_conditions_are_null_conditions():
    assert only(SliceEndpoint(["10.42.1.5"])) == only(SliceEndpoint(["10.42.1.5"], EndpointConditions()))
    assert only(SliceEndpoint(["10.42.1.5"])).ready


@pytest.mark.parametrize(
    ("endpoint_node", "own_name", "is_local"),
    [
        ("n1", "n1", True),
        ("n2", "n1", False),
        (None, "n1", False),
        ("", "n1", False),
        ("n1.example.net", "n1", False),
        ("n1.example.net", "n1.example.net", True),
        ("N1", "n1", False),
        ("", "", False),
        (None, "", False),
    ],
)
def test_an_endpoint_is_local_when_it_names_this_node(endpoint_node: str | None, own_name: str, is_local: bool):
    assert only(endpoint("10.42.1.5", endpoint_node), node_name=own_name).is_local is is_local


def test_hints_are_sets_of_names():
    found = only(endpoint("10.42.1.5", zones=["za", "zb", "za"], nodes=["n1"]))
    assert (found.zone_hints, found.node_hints) == ({"za", "zb"}, {"n1"})


@pytest.mark.parametrize("hints", [None, EndpointHints(), EndpointHints([], []), EndpointHints([Hint(None), Hint("")])])
def test_empty_hints_are_no_hints(hints: EndpointHints | None):
    found = only(SliceEndpoint(["10.42.1.5"], hints=hints))
    assert (found.zone_hints, found.node_hints) == (frozenset(), frozenset())


def test_only_the_first_address_counts():
    assert only(SliceEndpoint(["10.42.1.5", "10.42.1.6"])).address == "10.42.1.5"


@pytest.mark.parametrize("addresses", [None, []])
def test_an_endpoint_without_addresses_is_passed_over(addresses: list[str] | None):
    assert record_of(endpoint_slice("web", SliceEndpoint(addresses))).endpoints == ()


@pytest.mark.parametrize(
    ("family", "text", "canonical"),
    [
        ("IPv4", "10.1.02.3", "10.1.2.3"),
        ("IPv6", "FD42:0:0::0071", "fd42::71"),
        ("IPv4", "::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
def test_addresses_are_kept_in_their_one_spelling(family: str, text: str, canonical: str):
    assert only(text, family=family).address == canonical


@pytest.mark.parametrize(
    ("family", "address", "words"),
    [
        ("IPv6", "10.42.1.5", "is not an IPv6 address, endpoint skipped"),
        ("IPv6", "::ffff:10.42.1.5", "is not an IPv6 address, endpoint skipped"),
        ("IPv4", "fd42::5", "is not an IPv4 address, endpoint skipped"),
        ("IPv6", "fe80::1%eth0", "zone ids are not allowed, endpoint skipped"),
        ("IPv4", "10.42.1.300", "not an IP address, endpoint skipped"),
        ("IPv4", "10.42.1.5\n-j ACCEPT", "not an IP address, endpoint skipped"),
        ("IPv4", "", "not an IP address, endpoint skipped"),
        ("IPv4", "169.254.169.254", "is a link-local address, endpoint skipped"),
        ("IPv4", "127.0.0.1", "is a loopback address, endpoint skipped"),
        ("IPv4", "127.8.9.10", "is a loopback address, endpoint skipped"),
        ("IPv4", "224.0.0.5", "is a link-local multicast address, endpoint skipped"),
        ("IPv4", "0.0.0.0", "is an unspecified address, endpoint skipped"),
        ("IPv6", "fe80::1", "is a link-local address, endpoint skipped"),
        ("IPv6", "FEBF::1", "is a link-local address, endpoint skipped"),
        ("IPv6", "::1", "is a loopback address, endpoint skipped"),
        ("IPv6", "::", "is an unspecified address, endpoint skipped"),
        ("IPv6", "ff02::5", "is a link-local multicast address, endpoint skipped"),
        ("IPv6", "::ffff:169.254.169.254", "is not an IPv6 address, endpoint skipped"),
        ("IPv4", "::ffff:169.254.169.254", "is a link-local address, endpoint skipped"),
    ],
)
def test_a_wrong_address_is_skipped_and_the_others_stay(family: str, address: str, words: str):
    good = "10.42.1.9" if family == "IPv4" else "fd42::9"
    slice_ = endpoint_slice("web", address, good, family=family)
    record, problems = slice_record(NAME, slice_, "n1")
    assert record is not None
    assert [each.address for each in record.endpoints] == [good]
    (problem,) = problems
    assert (problem.field, problem.action) == ("endpoints[0].addresses[0]", words)
    assert str(problem).isprintable()


@pytest.mark.parametrize("address", ["169.253.1.1", "169.25.4.1", "12.7.0.1", "224.0.1.1", "239.1.1.1"])
def test_other_addresses_are_the_api_server_s_to_refuse(address: str):
    assert only(address).address == address


@pytest.mark.parametrize("address", ["fec0::1", "ff05::2", "ffff::1", "::2", "fd42::fe80"])
def test_other_ipv6_addresses_too(address: str):
    assert only(address, family="IPv6").address == address


def test_many_wrong_addresses_in_one_slice_are_one_line():
    slice_ = endpoint_slice("web", "10.42.1.9", "169.254.169.254", "127.0.0.1", "10.42.1.300")
    record, (problem,) = slice_record(NAME, slice_, "n1")
    assert record is not None
    assert [each.address for each in record.endpoints] == ["10.42.1.9"]
    assert problem.field == "endpoints[1].addresses[0]"
    assert problem.action == "is a link-local address, endpoint skipped, as are 2 more of this slice"


def test_what_changes_no_routing_changes_no_record():
    first = EndpointSlice(
        ObjectMeta("web-1", "shop", "uid-1", "1", labels={"kubernetes.io/service-name": "web"}), "IPv4", [], []
    )
    second = EndpointSlice(
        ObjectMeta(
            "web-1",
            "shop",
            "uid-2",
            "2",
            labels={"kubernetes.io/service-name": "web", "a": "b"},
            annotations={"c": "d"},
        ),
        "IPv4",
        None,
        None,
    )
    assert record_of(first) == record_of(second)
