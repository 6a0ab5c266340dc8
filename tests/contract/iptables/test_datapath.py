"""The datapath on a host: what it writes, what it leaves alone, how it comes back into step."""

from collections.abc import Iterable

import msgspec
import pytest

from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import Table
from kbpf.datapath.iptables.trace import TraceNode, trace
from kbpf.model.address import Address, Family
from kbpf.model.flow import PASS, REJECT, Action, Origin
from kbpf.model.names import Protocol, ServiceName
from kbpf.model.objects import EndpointSlice, Service
from kbpf.model.table import ResolvedPort, ServiceTable
from tests.builders import endpoint, endpoint_slice, flow, port, service, service_name, slice_port, table_of
from tests.contract.iptables.hosts import Host, meaning

NOTHING: frozenset[ServiceName] = frozenset()
WEB = service_name("web")
NODE = TraceNode(frozenset({Address("192.168.50.11")}))
FOREIGN = """*nat
:CNI-HOSTPORT - [0:0]
:KUBE-SVC-LIKE - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT
-A CNI-HOSTPORT -p tcp -m tcp --dport 8443 -j DNAT --to-destination 10.244.1.77:443
-A KUBE-SVC-LIKE -s 10.0.0.0/8 -j RETURN
COMMIT
*filter
:BLOCKED - [0:0]
-A FORWARD -p tcp -m tcp --dport 25 -m comment --comment "say \\"no\\"" -j BLOCKED
-A BLOCKED -j DROP
COMMIT
"""


def objects(*more: Service | EndpointSlice) -> tuple[Service | EndpointSlice, ...]:
    """Every kind of frontend and every kind of answer, in both families."""
    return (
        service(
            "web",
            port(80, "http", node_port=30080),
            cluster_ips=["10.96.0.10", "fd96::10"],
            type="LoadBalancer",
            ingress=["203.0.113.20"],
            load_balancer_source_ranges=["198.51.100.0/24", "192.168.50.0/24"],
            external_traffic_policy="Local",
            health_check_node_port=31000,
        ),
        endpoint_slice("web", "10.244.1.5", endpoint("10.244.2.7", "n2"), ports=[slice_port(8080, "http")]),
        endpoint_slice("web", "fd00:10:244:1::5", family="IPv6", ports=[slice_port(8080, "http")]),
        service("idle", cluster_ips=["10.96.0.11", "fd96::11"], external_ips=["203.0.113.21"]),
        service("sticky", port(53, "", "UDP"), cluster_ips=["10.96.0.12"], session_affinity="ClientIP"),
        endpoint_slice("sticky", "10.244.1.6", "10.244.1.7", ports=[slice_port(5353, "", "UDP")]),
        *more,
    )


def many_services(count: int, backends: Iterable[str] = ("10.244.1.1", "10.244.1.2")) -> ServiceTable:
    """`web` and its like, each with the same backends."""
    (pattern,) = table_of(service("web"), endpoint_slice("web", *backends)).ports_of(WEB)
    table = ServiceTable()
    for number in range(count):
        name = ServiceName("shop", f"web{number}")
        address = Address(f"10.96.{number // 250}.{number % 250 + 1}")
        (frontend,) = pattern.frontends
        resolved = msgspec.structs.replace(
            pattern, name=pattern.name._replace(service=name), frontends=(frontend._replace(address=address),)
        )
        table.replace(name, (resolved,))
    return table


def change(table: ServiceTable, *changed: Service | EndpointSlice) -> frozenset[ServiceName]:
    """Let `table` follow: web is decided anew from the objects."""
    return table.replace(WEB, table_of(*changed).ports_of(WEB))


# -- full syncs --------------------------------------------------------------------------------------------------------


def test_a_restarted_datapath_finds_everything_in_place_and_writes_nothing(host: Host):
    table = table_of(*objects())
    assert host.datapath().sync(table, NOTHING, full=True).writes > 50
    again = host.datapath().sync(table, NOTHING, full=True)
    assert again.full
    assert again.writes == 0
    assert again.warnings == ()


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_the_saved_rules_lead_to_the_backends(host: Host, family: Family):
    host.datapath().sync(table_of(*objects()), NOTHING, full=True)
    v4 = family is Family.IPV4
    rules = host.rules(family)
    pod, web, idle = ("10.244.1.9", "10.96.0.10", "10.96.0.11") if v4 else ("fd00:10:244::9", "fd96::10", "fd96::11")
    verdict = trace(rules, flow(Origin.POD, pod, web), NODE).verdict
    assert verdict.action is Action.FORWARD
    assert {each.address for each in verdict.backends} == ({"10.244.1.5", "10.244.2.7"} if v4 else {"fd00:10:244:1::5"})
    assert trace(rules, flow(Origin.POD, pod, idle), NODE).verdict == REJECT
    assert trace(rules, flow(Origin.POD, pod, web, 81), NODE).verdict == PASS


def test_session_affinity_keeps_both_backends_possible(host: Host):
    host.datapath().sync(table_of(*objects()), NOTHING, full=True)
    question = flow(Origin.HOST, "192.168.50.11", "10.96.0.12", 53, Protocol.UDP)
    found = trace(host.rules(), question, NODE)
    assert {each.address for each in found.verdict.backends} == {"10.244.1.6", "10.244.1.7"}
    assert found.verdict.masquerade
    assert any("--rcheck" in rule for rule in found.rules)


def test_each_jump_stands_once_and_at_the_top_in_the_order_of_kube_proxy(host: Host):
    host.datapath().sync(ServiceTable(), NOTHING, full=True)
    chains = host.rules()
    targets = {
        (table.value, name): [parse_rule(rule).target for rule in chain.rules]
        for table in (Table.FILTER, Table.NAT)
        for name, chain in chains[table].items()
        if name.isalpha() and chain.rules
    }
    assert targets == {
        ("filter", "INPUT"): ["KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"],
        ("filter", "FORWARD"): ["KUBE-PROXY-FIREWALL", "KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"],
        ("filter", "OUTPUT"): ["KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-SERVICES"],
        ("nat", "PREROUTING"): ["KUBE-SERVICES"],
        ("nat", "OUTPUT"): ["KUBE-SERVICES"],
        ("nat", "POSTROUTING"): ["KUBE-POSTROUTING"],
    }


def test_a_jump_that_stands_twice_is_reduced_to_one(host: Host):
    host.datapath().sync(ServiceTable(), NOTHING, full=True)
    before = meaning(host.rules())
    jump = '-m comment --comment "kubernetes service portals" -j KUBE-SERVICES'
    host.tool().restore(f"*nat\n-I OUTPUT 1 {jump}\n-I OUTPUT 1 {jump}\nCOMMIT\n")
    host.datapath().sync(ServiceTable(), NOTHING, full=True)
    assert meaning(host.rules()) == before


def test_a_rule_above_our_jump_is_reported_once_and_left_where_it_is(host: Host):
    datapath = host.datapath()
    datapath.sync(ServiceTable(), NOTHING, full=True)
    host.tool().restore(
        "*nat\n-I PREROUTING 1 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.0.0.9:443\nCOMMIT\n"
    )
    report = datapath.sync(ServiceTable(), NOTHING, full=True)
    assert report.warnings == (
        "IPv4: nat PREROUTING: 1 rule stands above the jump to KUBE-SERVICES and may take its traffic",
    )
    assert report.writes == 0
    assert datapath.sync(ServiceTable(), NOTHING, full=True).warnings == ()


def test_chains_of_services_that_are_gone_are_deleted(host: Host):
    host.datapath().sync(table_of(*objects()), NOTHING, full=True)
    host.datapath().sync(ServiceTable(), NOTHING, full=True)
    assert not [name for name in host.rules()[Table.NAT] if name.startswith(("KUBE-SVC", "KUBE-SEP", "KUBE-EXT"))]


def test_a_stale_chain_that_a_foreign_rule_uses_is_emptied_and_named(host: Host):
    host.tool().restore(
        "*nat\n:KUBE-SVC-34ZZ2QFGO32YYXXO - [0:0]\n-A KUBE-SVC-34ZZ2QFGO32YYXXO -j ACCEPT\n"
        "-A OUTPUT -d 10.0.0.1 -j KUBE-SVC-34ZZ2QFGO32YYXXO\nCOMMIT\n"
    )
    report = host.datapath().sync(ServiceTable(), NOTHING, full=True)
    assert "KUBE-SVC-34ZZ2QFGO32YYXXO" in "".join(report.warnings)
    assert host.rules()[Table.NAT]["KUBE-SVC-34ZZ2QFGO32YYXXO"].rules == ()


def test_a_thousand_services_are_written_read_back_and_deleted(host: Host):
    table = many_services(1000)
    report = host.datapath().sync(table, NOTHING, full=True)
    assert report.writes > 10_000
    assert len(host.rules()[Table.NAT]["KUBE-SERVICES"].rules) == 1001
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0
    host.datapath().sync(ServiceTable(), NOTHING, full=True)
    assert len(host.rules()[Table.NAT]) < 15


# -- partial syncs -----------------------------------------------------------------------------------------------------


def test_a_partial_sync_ends_where_a_full_one_would(host: Host):
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    moved = endpoint_slice("web", "10.244.1.8", endpoint("10.244.2.7", "n2"), ports=[slice_port(8080, "http")])
    for changed in (
        objects(moved),
        objects(endpoint_slice("web", ports=[slice_port(8080, "http")])),
        (),
        objects(),
    ):
        report = datapath.sync(table, change(table, *changed), full=False)
        assert not report.full
        assert report.writes > 0
        assert host.datapath().sync(table, NOTHING, full=True).writes == 0


def test_a_changed_endpoint_rewrites_nothing_but_its_service(host: Host):
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    more = endpoint_slice("web", "10.244.1.5", "10.244.1.6", ports=[slice_port(8080, "http")], name="more")
    report = datapath.sync(table, change(table, *objects(more)), full=False)
    assert report.writes < 30


# -- others ------------------------------------------------------------------------------------------------------------


def test_foreign_rules_and_chains_survive_everything(host: Host):
    host.tool().restore(FOREIGN)
    before = meaning(host.rules())
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    datapath.sync(table, change(table), full=False)
    for table_name, chain in before:
        kept = [parse_rule(rule) for rule in host.rules()[Table(table_name)][chain].rules]
        assert [rule for rule in kept if rule in before[table_name, chain]] == before[table_name, chain]
    datapath.cleanup()
    assert meaning(host.rules()) == before


def test_flushed_tables_are_noticed_and_repaired(host: Host):
    table = table_of(*objects())
    datapath = host.datapath()
    assert datapath.lost() == ()
    datapath.sync(table, NOTHING, full=True)
    assert datapath.lost() == ()
    before = meaning(host.rules())
    flush(host, Table.NAT)
    assert datapath.lost() == ("IPv4 nat: our chains",)
    datapath.sync(table, NOTHING, full=True)
    assert meaning(host.rules()) == before


def flush(host: Host, table: Table, family: Family = Family.IPV4) -> None:
    """iptables -F, iptables -X, as a firewall daemon does."""
    chains = host.rules(family)[table]
    own = [name for name in chains if not name.isalpha()]
    deletions = [f"-D{rule[2:]}" for name in chains if name.isalpha() for rule in chains[name].rules]
    lines = [*(f":{name} - [0:0]" for name in own), *deletions, *(f"-X {name}" for name in own)]
    host.tool(family).restore("\n".join([f"*{table.value}", *lines, "COMMIT", ""]))


def test_a_partial_sync_on_flushed_tables_repairs_them(host: Host):
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    flush(host, Table.NAT)
    more = endpoint_slice("web", "10.244.1.6", ports=[slice_port(8080, "http")], name="more")
    report = datapath.sync(table, change(table, *objects(more)), full=False)
    assert report.full
    assert len(report.warnings) == 1
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0


# -- cleanup -----------------------------------------------------------------------------------------------------------


def test_cleanup_on_a_host_that_never_saw_us_does_nothing_and_twice_as_well(host: Host):
    before = meaning(host.rules())
    host.datapath().cleanup()
    host.datapath().cleanup()
    assert meaning(host.rules()) == before


def test_cleanup_leaves_nothing_behind(host: Host):
    datapath = host.datapath()
    datapath.sync(table_of(*objects()), NOTHING, full=True)
    datapath.cleanup()
    assert all(meaning(host.rules(family)) == {} for family in Family)
    datapath.cleanup()
    assert datapath.dump() == ""


def test_what_kubelet_uses_as_well_is_left_to_it(host: Host):
    host.tool().restore("*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n")
    datapath = host.datapath()
    datapath.sync(ServiceTable(), NOTHING, full=True)
    datapath.cleanup()
    left = {chain for _, chain in meaning(host.rules())}
    assert left == {"KUBE-KUBELET-CANARY", "KUBE-FIREWALL", "INPUT", "OUTPUT"}


def test_cleanup_empties_a_chain_that_a_foreign_rule_jumps_to_and_removes_the_rest(host: Host):
    datapath = host.datapath()
    datapath.sync(table_of(*objects()), NOTHING, full=True)
    host.tool().restore("*nat\n-A POSTROUTING -s 10.9.0.0/16 -j KUBE-MARK-MASQ\nCOMMIT\n")
    datapath.cleanup()
    datapath.cleanup()
    assert {name for _, name in meaning(host.rules())} == {"KUBE-MARK-MASQ", "POSTROUTING"}
    assert host.rules()[Table.NAT]["KUBE-MARK-MASQ"].rules == ()


def test_a_half_deleted_rule_set_is_cleaned_up_all_the_same(host: Host):
    datapath = host.datapath()
    datapath.sync(table_of(*objects()), NOTHING, full=True)
    flush(host, Table.NAT)
    datapath.cleanup()
    assert meaning(host.rules()) == {}


def test_the_dump_holds_our_rules_with_family_and_table(host: Host):
    host.tool().restore(FOREIGN)
    datapath = host.datapath()
    datapath.sync(table_of(*objects()), NOTHING, full=True)
    lines = datapath.dump().splitlines()
    assert "IPv4 nat -N KUBE-SERVICES" in lines
    assert "IPv6 filter -N KUBE-FORWARD" in lines
    assert any(line.startswith("IPv4 nat -A PREROUTING ") for line in lines)
    assert not any("BLOCKED" in line or "CNI-HOSTPORT" in line for line in lines)


def test_a_port_resolved_for_one_family_touches_no_other(host: Host):
    resolved: tuple[ResolvedPort, ...] = table_of(*objects()).ports_of(WEB)
    table = ServiceTable()
    table.replace(WEB, tuple(each for each in resolved if each.family is Family.IPV6))
    host.datapath().sync(table, NOTHING, full=True)
    assert not any(name.startswith("KUBE-SVC") for name in host.rules(Family.IPV4)[Table.NAT])
    assert any(name.startswith("KUBE-SVC") for name in host.rules(Family.IPV6)[Table.NAT])
