"""The ServiceTable: reading it, and who owns a frontend that several service ports claim."""

from kbpf.model.address import Address, Family
from kbpf.model.names import Protocol, ServiceName
from kbpf.model.objects import SliceEndpoint
from kbpf.model.table import Backend, Frontend, FrontendKey, FrontendKind, ResolvedPort, ServiceTable, View
from tests.builders import endpoint, endpoint_slice, port, service, service_name, table_of

SHARED = "203.0.113.94"
KEY = FrontendKey(Family.IPV4, Address(SHARED), 80, Protocol.TCP)
A, B, C = (service_name(name) for name in "abc")


def sharing(name: str, *numbers: int, cluster_ip: str = "10.96.0.10") -> tuple[ResolvedPort, ...]:
    ports = [port(number, f"p{number}") for number in numbers or (80,)]
    made = service(name, *ports, cluster_ips=[cluster_ip], external_ips=[SHARED])
    return table_of(made).ports_of(service_name(name))


def put(table: ServiceTable, name: ServiceName, *numbers: int) -> frozenset[ServiceName]:
    return table.replace(name, sharing(name.name, *numbers, cluster_ip=f"10.96.0.{ord(name.name)}"))


def owner(table: ServiceTable) -> ServiceName | None:
    name = table.owner(KEY)
    return name.service if name else None


def test_the_first_by_name_owns_a_shared_frontend_whatever_the_order_of_arrival():
    for order in ((A, B, C), (C, B, A), (B, C, A)):
        table = ServiceTable()
        for name in order:
            put(table, name)
        assert owner(table) == A


def put_with(table: ServiceTable, name: ServiceName, *endpoints: SliceEndpoint, policy: str = "Cluster") -> None:
    made = service(
        name.name,
        cluster_ips=[f"10.96.0.{ord(name.name)}"],
        external_ips=[SHARED],
        external_traffic_policy=policy,
    )
    table.replace(name, table_of(made, endpoint_slice(name.name, *endpoints)).ports_of(name))


def test_one_that_has_endpoints_owns_rather_than_one_that_would_drop_or_reject():
    table = ServiceTable()
    put_with(table, A)
    put_with(table, B, endpoint("10.42.2.5", "n2"), policy="Local")
    assert owner(table) == B
    put_with(table, C, endpoint("10.42.2.6", "n2"))
    assert owner(table) == C
    put_with(table, A, endpoint("10.42.2.7", "n2"))
    assert owner(table) == A


def test_an_owner_that_loses_its_endpoints_hands_over_to_one_that_has_some():
    table = ServiceTable()
    put_with(table, A, endpoint("10.42.2.5", "n2"))
    put_with(table, B, endpoint("10.42.2.6", "n2"))
    (emptied,) = table_of(service("a", external_ips=[SHARED], cluster_ips=["10.96.0.97"])).ports_of(A)
    assert table.replace(A, (emptied,)) == {A, B}
    assert owner(table) == B


def test_when_the_owner_leaves_the_next_one_takes_over():
    table = ServiceTable()
    for name in (C, A, B):
        put(table, name)
    for name, heir in ((A, B), (B, C), (C, None)):
        assert table.replace(name, ()) == {name} | ({heir} if heir else set())
        assert owner(table) == heir


def test_a_newcomer_that_takes_over_names_the_one_that_lost():
    table = ServiceTable()
    assert put(table, B) == {B}
    assert put(table, C) == {C}
    assert put(table, A) == {A, B}


def test_one_that_waits_may_leave_without_a_trace():
    table = ServiceTable()
    put(table, A)
    put(table, B)
    assert table.replace(B, ()) == {B}
    assert owner(table) == A


def test_a_service_that_gives_up_only_the_shared_port_hands_it_over():
    table = ServiceTable()
    put(table, A, 80, 443)
    put(table, B, 80)
    assert put(table, A, 443) == {A, B}
    assert owner(table) == B


def test_other_ports_of_a_shared_address_are_not_shared():
    table = ServiceTable()
    put(table, A, 80)
    put(table, B, 25)
    assert table.replace(A, ()) == {A}
    assert [frontend.port for resolved in table for frontend in table.owned_frontends(resolved)] == [25, 25]


def test_owned_frontends_leave_out_what_another_one_owns():
    table = ServiceTable()
    put(table, A)
    put(table, B)
    (of_a,), (of_b,) = table.ports_of(A), table.ports_of(B)
    shared = Frontend(FrontendKind.EXTERNAL_IP, Address(SHARED), 80)
    assert shared in table.owned_frontends(of_a)
    assert shared in of_b.frontends
    assert [frontend.kind for frontend in table.owned_frontends(of_b)] == [FrontendKind.CLUSTER_IP]


def test_tcp_and_udp_on_one_port_are_two_frontends():
    made = service("a", port(53, "t"), port(53, "u", "UDP"), external_ips=[SHARED])
    table = table_of(made)
    for protocol, name in ((Protocol.TCP, "t"), (Protocol.UDP, "u")):
        found = table.owner(FrontendKey(Family.IPV4, Address(SHARED), 53, protocol))
        assert found is not None
        assert found.port == name


def test_one_service_with_two_ports_on_one_frontend_keeps_one_owner():
    """Two names, one number and protocol: the API refuses it, a file may say it."""
    table = table_of(service("a", port(80, "x"), port(80, "y")))
    first, second = table
    assert table.owned_frontends(first) == first.frontends
    assert table.owned_frontends(second) == ()
    assert table.replace(service_name("a"), (second,)) == {service_name("a")}
    assert table.owned_frontends(second) == second.frontends


def test_the_same_again_changes_nothing():
    table = ServiceTable()
    put(table, A)
    put(table, B)
    assert put(table, A) == {A}
    assert owner(table) == A


def test_removing_what_is_not_there_is_harmless():
    table = ServiceTable()
    assert table.replace(A, ()) == {A}
    assert (list(table), len(table)) == ([], 0)


def test_ports_come_sorted_by_service():
    table = ServiceTable()
    for name in (C, A, B):
        put(table, name)
    assert [resolved.name.service for resolved in table] == [A, B, C]
    assert (len(table), set(table.services)) == (3, {A, B, C})


def test_tables_are_equal_when_their_decisions_are():
    table, other = ServiceTable(), ServiceTable()
    put(table, A)
    assert table != other
    put(other, B)
    put(other, A)
    other.replace(B, ())
    assert table == other
    assert table != "a table"


def test_a_frontend_uses_the_list_and_target_of_its_side():
    made = service(
        "web", port(80, node_port=30080), type="NodePort", external_traffic_policy="Local", cluster_ips=["10.96.0.10"]
    )
    (resolved,) = table_of(made, endpoint_slice("web", "10.42.1.5", endpoint("10.42.2.5", "n2")))
    cluster_ip, node_port = resolved.frontends
    assert (resolved.target(cluster_ip), resolved.target(node_port)) == (resolved.internal, resolved.external)
    assert resolved.backends(View.LOCAL) == (Backend(Address("10.42.1.5"), 8080, True),)
    assert len(resolved.backends(View.CLUSTER)) == 2
    assert resolved.key(node_port) == FrontendKey(Family.IPV4, None, 30080, Protocol.TCP)
