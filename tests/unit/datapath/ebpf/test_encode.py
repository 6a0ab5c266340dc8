"""From a decided service port to rows: nothing is decided again, and every list is where its view says."""

from kbpf.datapath.ebpf.defer import Deferral
from kbpf.datapath.ebpf.encode import (
    OPEN_END,
    Encoded,
    backend_addresses,
    frontend_rows,
    source_range,
    source_ranges,
)
from kbpf.datapath.ebpf.ids import backend_address
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    NAME_LENGTH,
    DeferReason,
    FrontendFlag,
    FrontendKey,
    FrontendValue,
    Kind,
    MembershipKey,
    MembershipValue,
    NameValue,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SlotValue,
    SourceRangeKey,
    Verdict,
    View,
)
from kbpf.model.address import Address, packed
from kbpf.model.table import FrontendKind, ResolvedPort
from tests.builders import endpoint, endpoint_slice, port, service, table_of


def resolved(*slices, **spec) -> ResolvedPort:
    [found] = table_of(service("web", port(80, node_port=30080), **spec), *slices)
    return found


def row(port: ResolvedPort, kind: FrontendKind) -> tuple[FrontendKey, FrontendValue]:
    [frontend] = [each for each in port.frontends if each.kind is kind]
    [found] = frontend_rows(port, [frontend], {}, 5)
    return found


PACKETS_LEFT = Deferral(packets=DeferReason.EXTERNAL)
OPTED_OUT = Deferral(DeferReason.OPT_OUT, DeferReason.OPT_OUT)
ELSEWHERE = endpoint_slice("web", endpoint("10.42.2.5", "n2"))


def test_a_cluster_ip_says_the_same_to_sockets_and_to_packets():
    key, value = row(resolved(ELSEWHERE, internal_traffic_policy="Local"), FrontendKind.CLUSTER_IP)
    assert key == FrontendKey(packed(Address("10.96.0.10")), 80, 6)
    assert value == FrontendValue(
        *key, Kind.CLUSTER_IP, 5, 0, DeferReason.NONE, View.LOCAL, Verdict.DROP, View.LOCAL, Verdict.DROP
    )


def test_sockets_of_this_node_use_the_cluster_list_of_an_external_frontend_whatever_its_policy():
    _, value = row(resolved(ELSEWHERE, type="NodePort", external_traffic_policy="Local"), FrontendKind.NODE_PORT)
    assert (value.internal_view, value.external_view, value.external_verdict) == (
        View.CLUSTER,
        View.LOCAL,
        Verdict.DROP,
    )


def test_node_ports_of_the_two_families_have_addresses_of_their_own():
    both = table_of(service("web", port(80, node_port=30080), cluster_ips=("10.96.0.10", "fd96::10")))
    keys = [row(each, FrontendKind.NODE_PORT)[0] for each in both]
    assert [key.address for key in keys] == [packed(Address("0.0.0.0")), packed(Address("::"))]


def test_a_deferred_row_says_nothing_about_the_service_port():
    port = resolved(internal_traffic_policy="Local")
    deferrals = dict.fromkeys(port.frontends, OPTED_OUT)
    (key, value), *_ = frontend_rows(port, port.frontends, deferrals, 5)
    assert value == FrontendValue(*key, Kind.CLUSTER_IP, 0, 3, DeferReason.OPT_OUT, 0, 0, 0, 0)


def test_a_frontend_that_sockets_alone_are_served_on_says_which_callers_are_left_alone():
    port = resolved(external_ips=["203.0.113.9"])
    [external] = [each for each in port.frontends if each.kind is FrontendKind.EXTERNAL_IP]
    [(_, value)] = frontend_rows(port, [external], {external: Deferral(packets=DeferReason.EXTERNAL)}, 5)
    assert (value.service_id, value.flags, value.defer_reason) == (5, FrontendFlag.DEFER_PACKETS, DeferReason.EXTERNAL)


def test_an_address_that_is_listed_twice_is_what_it_is_listed_as_first():
    port = resolved(type="LoadBalancer", external_ips=["203.0.113.9"], ingress=["203.0.113.9"])
    rows = dict(frontend_rows(port, port.frontends, {}, 5))
    assert rows[FrontendKey(packed(Address("203.0.113.9")), 80, 6)].kind == Kind.EXTERNAL_IP


def test_source_ranges_guard_load_balancer_addresses_whose_packets_are_served():
    port = resolved(
        ELSEWHERE,
        type="LoadBalancer",
        ingress=["203.0.113.5"],
        external_ips=["203.0.113.9"],
        load_balancer_source_ranges=["192.0.2.0/24", "10.0.0.0/8", "192.0.2.0/24"],
    )
    rows = frontend_rows(port, port.frontends, {}, 5)
    guarded = {value.kind for _, value in rows if value.flags & FrontendFlag.SOURCE_RANGES}
    assert guarded == {Kind.LOAD_BALANCER_IP}
    assert source_ranges(port, rows, 5) == (
        SourceRangeKey(32 + 96 + 8, 5, packed(Address("10.0.0.0"))),
        SourceRangeKey(32 + 96 + 24, 5, packed(Address("192.0.2.0"))),
    )
    deferred = frontend_rows(port, port.frontends, dict.fromkeys(port.frontends, PACKETS_LEFT), 5)
    assert source_ranges(port, deferred, 5) == ()


def test_without_endpoints_nobody_is_told_apart():
    port = resolved(type="LoadBalancer", ingress=["203.0.113.5"], load_balancer_source_ranges=["192.0.2.0/24"])
    assert source_ranges(port, frontend_rows(port, port.frontends, {}, 5), 5) == ()


def test_a_source_range_counts_the_bits_of_the_service_and_of_the_mapped_prefix():
    assert source_range(7, "2001:db8::/32") == SourceRangeKey(64, 7, packed(Address("2001:db8::")))
    assert source_range(7, "0.0.0.0/0") == SourceRangeKey(128, 7, packed(Address("0.0.0.0")))


def test_backend_addresses_carry_the_protocol():
    port = resolved(endpoint_slice("web", "10.42.1.5"))
    assert backend_addresses(port, port.cluster) == [packed(Address("10.42.1.5")) + b"\x1f\x90\x06\x00"]


PLACES = {number: backend_address(packed(Address(f"10.42.1.{number}")), 8080, 6) for number in (7, 8)}


def test_a_service_is_named_as_the_rules_name_it_and_one_without_an_id_is_not():
    rows = Rows()
    Encoded((), 5, 3, name="shop/web:http").add_to(rows, PLACES.__getitem__)
    Encoded((), 0, name="shop/gone").add_to(rows, PLACES.__getitem__)
    assert {key.id: str(name) for key, name in rows.names.items()} == {5: "shop/web:http"}


def test_the_longest_name_that_the_api_lets_pass_fits_and_comes_back():
    longest = f"{'n' * 63}/{'s' * 63}:{'p' * 63}"
    assert str(NameValue.of(longest)) == longest
    assert len(NameValue.of("a/b").text) == len(NameValue.of(longest).text) == NAME_LENGTH


def test_a_service_has_one_row_and_each_list_its_slots_and_members():
    rows = Rows()
    Encoded((), 5, 3, cluster=(7, 8), local=(8,), affinity_timeout_s=60).add_to(rows, PLACES.__getitem__)
    assert rows.services == {ServiceKey(5): ServiceValue(3, 2, 1, 5, 60)}
    assert rows.slots == {
        SlotKey(5, 3, View.CLUSTER, 0): SlotValue(5, 3, 7, PLACES[7]),
        SlotKey(5, 3, View.CLUSTER, 1): SlotValue(5, 3, 8, PLACES[8]),
        SlotKey(5, 3, View.LOCAL, 0): SlotValue(5, 3, 8, PLACES[8]),
    }
    assert rows.membership == {
        MembershipKey(5, 7, View.CLUSTER): MembershipValue(3, OPEN_END, 5, 7),
        MembershipKey(5, 8, View.CLUSTER): MembershipValue(3, OPEN_END, 5, 8),
        MembershipKey(5, 8, View.LOCAL): MembershipValue(3, OPEN_END, 5, 8),
    }


def test_a_service_port_that_is_deferred_whole_has_no_service_row():
    rows, port = Rows(), resolved()
    frontends = frontend_rows(port, port.frontends, dict.fromkeys(port.frontends, OPTED_OUT), 0)
    Encoded(frontends).add_to(rows, PLACES.__getitem__)
    assert [spec.name for spec, held in rows if held] == ["frontends"]
