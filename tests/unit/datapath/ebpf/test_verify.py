"""A sound set of rows has no difference; each way in which one can be wrong is named with its Service."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.ids import backend_address
from kbpf.datapath.ebpf.node import NodeState, node_rows, says_apart, stand_apart
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    BackendKey,
    ConfigFlag,
    IndexKey,
    Kind,
    LocalAddrKey,
    LocalAddrValue,
    MembershipKey,
    NameKey,
    NameValue,
    ServiceKey,
    SlotKey,
    View,
)
from kbpf.datapath.ebpf.verify import differences, spilled
from kbpf.model.address import Address, packed
from kbpf.model.table import ServiceTable
from tests.asked_node import LOCAL, NODE_SETTINGS, AskedNode
from tests.builders import draining, endpoint, endpoint_slice, port, service, slice_port, table_of

TABLE = table_of(
    service(
        "web",
        port(80, node_port=30080),
        type="LoadBalancer",
        ingress=["203.0.113.6"],
        load_balancer_source_ranges=["198.51.100.0/24"],
        session_affinity="ClientIP",
    ),
    endpoint_slice("web", "10.42.1.5", "10.42.1.6"),
    service("media", port(99, protocol="SCTP"), cluster_ips=["10.96.0.11"]),
    endpoint_slice("media", "10.42.1.5", ports=[slice_port(99, protocol="SCTP")]),
    service("empty", cluster_ips=["10.96.0.12"]),
)
WEB_ID = 2
"""Services are given ids by name: `empty` is the first, `media` has none."""
HEAD = "shop/web (IPv4): "


@pytest.fixture
def rows() -> Rows:
    found = AskedNode().sync(TABLE).kernel.found
    assert found is not None
    assert str(found.rows.names[NameKey(WEB_ID)]) == "shop/web"
    return found.rows


def told(rows: Rows, table: ServiceTable = TABLE, masquerades: bool = True) -> list[str]:
    settings = DeferSettings(serves_packets=True, spilled=spilled(rows, table))
    apart = says_apart(rows) and stand_apart(rows.frontends, LOCAL)
    node = node_rows(NODE_SETTINGS, NodeState(LOCAL, masquerades=masquerades, stands_apart=apart))
    return list(differences(rows, table, settings, node))


def test_what_a_sync_wrote_has_no_difference(rows: Rows):
    assert told(rows) == []


def first_slot(rows: Rows) -> SlotKey:
    service = rows.services[ServiceKey(WEB_ID)]
    return SlotKey(WEB_ID, service.generation, View.CLUSTER, 0)


def break_count(rows: Rows) -> None:
    key = ServiceKey(WEB_ID)
    rows.services[key] = rows.services[key]._replace(n_local=1)


def break_timeout(rows: Rows) -> None:
    key = ServiceKey(WEB_ID)
    rows.services[key] = rows.services[key]._replace(affinity_timeout_s=5)


def break_backend(rows: Rows) -> None:
    key = BackendKey(rows.slots[first_slot(rows)].backend_id)
    rows.backends[key] = rows.backends[key]._replace(port=9)


def lose_backend(rows: Rows) -> None:
    del rows.backends[BackendKey(rows.slots[first_slot(rows)].backend_id)]


def move_slot(rows: Rows) -> None:
    key = first_slot(rows)
    place = backend_address(packed(Address("10.42.1.5")), 9, 6)
    rows.slots[key] = rows.slots[key]._replace(backend=place)


def break_slot(rows: Rows) -> None:
    key = first_slot(rows)
    rows.slots[key] = rows.slots[key]._replace(generation=77)


def break_member(rows: Rows) -> None:
    del rows.membership[MembershipKey(WEB_ID, rows.slots[first_slot(rows)].backend_id, View.CLUSTER)]


def break_name(rows: Rows) -> None:
    rows.names[NameKey(WEB_ID)] = NameValue.of("shop/other")


def break_service(rows: Rows) -> None:
    del rows.services[ServiceKey(WEB_ID)]


def break_range(rows: Rows) -> None:
    del rows.source_ranges[next(key for key in rows.source_ranges if key.service_id == WEB_ID)]


def break_frontend(rows: Rows) -> None:
    del rows.frontends[next(key for key in rows.frontends if key.port == 30080)]


def break_flags(rows: Rows) -> None:
    key = next(key for key in rows.frontends if key.port == 30080)
    rows.frontends[key] = rows.frontends[key]._replace(kind=3)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (break_count, "services id=2: n_local=1 instead of 0"),
        (break_timeout, "services id=2: affinity_timeout_s=5 instead of 10800"),
        (break_backend, "cluster list: backends id=1: port=9 instead of 8080"),
        (lose_backend, "cluster list: lacks backends id=1"),
        (move_slot, "cluster list: lacks 10.42.1.5:8080"),
        (move_slot, "cluster list: has beyond 10.42.1.5:9"),
        (break_slot, "cluster list: nothing behind slots service_id=2 generation=1 view=CLUSTER position=0"),
        (break_member, "is in a slot and no member"),
        (break_name, "is named shop/other in names"),
        (break_service, "lacks services id=2"),
        (break_range, "lacks source range"),
        (break_frontend, "lacks frontends address=0.0.0.0 port=30080 protocol=TCP"),
        (break_flags, "kind=EXTERNAL_IP instead of NODE_PORT"),
    ],
)
def test_a_broken_row_is_named_with_its_service(rows: Rows, break_it: Callable[[Rows], None], words: str):
    break_it(rows)
    lines = told(rows)
    assert any(line.startswith(HEAD) and words in line for line in lines), lines
    assert all(line.startswith(HEAD) for line in lines if "of no Service" not in line)


def test_rows_of_no_service_are_named(rows: Rows):
    address = packed(Address("10.96.0.10"))
    key, row = next((key, row) for key, row in rows.frontends.items() if key.address == address)
    rows.frontends[key._replace(port=81)] = row._replace(port=81)
    rows.services[ServiceKey(50)] = rows.services[ServiceKey(WEB_ID)]._replace(id=50)
    assert [line.split(" -> ")[0] for line in told(rows)] == [
        "of no Service: frontends address=10.96.0.10 port=81 protocol=TCP",
        "of no Service: services id=50",
    ]


def test_a_service_that_is_not_written_yet_is_named(rows: Rows):
    more = table_of(service("new", cluster_ips=["10.96.0.13"]))
    for port_of in TABLE:
        more.replace(port_of.name.service, TABLE.ports_of(port_of.name.service))
    assert told(rows, more) == ["shop/new (IPv4): lacks frontends address=10.96.0.13 port=80 protocol=TCP"]


def test_members_of_udp_without_a_slot_are_compared():
    ports = [slice_port(53, protocol="UDP")]
    table = table_of(
        service("dns", port(53, protocol="UDP")),
        endpoint_slice("dns", endpoint("10.42.1.5"), draining("10.42.2.6"), ports=ports),
    )
    found = AskedNode().sync(table).kernel.found
    assert found is not None
    assert told(found.rows, table, masquerades=False) == []
    [key] = [key for key in found.rows.membership if key.view == View.KEPT]
    member = found.rows.membership.pop(key)
    [listed] = found.rows.membership
    found.rows.membership[listed._replace(view=View.KEPT)] = member
    assert told(found.rows, table, masquerades=False) == [
        "shop/dns (IPv4): lacks the UDP flows of 10.42.2.6:53",
        "shop/dns (IPv4): keeps the UDP flows of 10.42.1.5:53",
    ]


def test_what_the_rows_say_of_the_node_is_compared(rows: Rows):
    rows.local_addr[LocalAddrKey(packed(Address("172.16.0.1")))] = LocalAddrValue(1)
    key = IndexKey(0)
    rows.config[key] = rows.config[key]._replace(masquerade_mark=1)
    assert told(rows) == [
        "node: has beyond local_addr address=172.16.0.1 -> flags=NODE_PORT",
        "node: config: differs in masquerade_mark",
    ]
    assert "node: config: differs in flags, masquerade_mark" in told(rows, masquerades=False)


def test_that_frontends_stand_apart_is_told_where_it_is_not_so(rows: Rows):
    key = next(key for key, value in rows.frontends.items() if value.kind == Kind.LOAD_BALANCER_IP)
    rows.frontends[key._replace(address=packed(next(iter(LOCAL))))] = rows.frontends[key]
    assert says_apart(rows)
    assert "node: config: differs in flags" in told(rows)
    config = rows.config[IndexKey(0)]
    rows.config[IndexKey(0)] = config._replace(flags=config.flags & ~ConfigFlag.STANDS_APART)
    assert "node: config: differs in flags" not in told(rows), "programs may be left to look"


def test_the_ranges_of_pods_are_compared_one_by_one():
    node = node_rows(replace(NODE_SETTINGS, pod_ranges=("10.42.0.0/16", "fd42::/64")), NodeState(LOCAL))
    found = node_rows(replace(NODE_SETTINGS, pod_ranges=("10.42.0.0/16", "10.43.0.0/16")), NodeState(LOCAL))
    assert list(differences(found, ServiceTable(), DeferSettings(), node)) == [
        "node: lacks source_ranges prefix_length=96 service_id=0 address=fd42::",
        "node: has beyond source_ranges prefix_length=144 service_id=0 address=10.43.0.0",
    ]


def test_a_service_that_does_not_fit_is_no_difference():
    found = AskedNode(sizes={"services": 3}).sync(TABLE).kernel.found
    assert found is not None
    assert {str(key.name) for key in spilled(found.rows, TABLE)} == {"shop/web"}
    assert told(found.rows, masquerades=False) == []
