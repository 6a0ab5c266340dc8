"""Rules that a sync wrote have no difference; what others took, added or reordered is named."""

import pytest

from kbpf.datapath.iptables.ruleset import Chain, Ruleset, Table
from kbpf.datapath.iptables.verify import differences, remains
from kbpf.model.address import Family
from tests.asked_node import AskedNode
from tests.builders import endpoint_slice, port, service, table_of

TABLE = table_of(service("web", port(80, node_port=30080), type="NodePort"), endpoint_slice("web", "10.42.1.5"))
Chains = dict[str, Chain]


@pytest.fixture
def node() -> AskedNode:
    return AskedNode("iptables").sync(TABLE)


def told(node: AskedNode, ruleset: Ruleset) -> list[str]:
    return list(differences(TABLE, node.rule_settings, ruleset, Family.IPV4))


def changed(node: AskedNode, table: Table, chain: str, *rules: str) -> Ruleset:
    ruleset = node.kernel.rulesets[Family.IPV4]
    return {**ruleset, table: {**ruleset[table], chain: Chain(chain, rules)}}


def without(node: AskedNode, table: Table, chain: str) -> Ruleset:
    ruleset = node.kernel.rulesets[Family.IPV4]
    return {**ruleset, table: {name: each for name, each in ruleset[table].items() if name != chain}}


def backend_chain(node: AskedNode) -> Chain:
    chains = node.kernel.rulesets[Family.IPV4][Table.NAT]
    return next(chain for name, chain in chains.items() if name.startswith("KUBE-SEP-"))


def test_what_a_sync_wrote_has_no_difference(node: AskedNode):
    assert told(node, node.kernel.rulesets[Family.IPV4]) == []


def test_a_rule_that_is_gone_is_named(node: AskedNode):
    chain = backend_chain(node)
    ruleset = changed(node, Table.NAT, chain.name, *chain.rules[:-1])
    [line] = told(node, ruleset)
    assert line.startswith(f"iptables IPv4 nat {chain.name}: lacks: -A {chain.name}")
    assert "--to-destination 10.42.1.5:8080" in line


def test_a_rule_of_somebody_else_in_our_chain_is_named(node: AskedNode):
    chain = backend_chain(node)
    foreign = f"-A {chain.name} -j DROP"
    assert told(node, changed(node, Table.NAT, chain.name, foreign, *chain.rules)) == [
        f"iptables IPv4 nat {chain.name}: has beyond: {foreign}"
    ]


def test_another_order_is_named(node: AskedNode):
    chain = backend_chain(node)
    [line] = told(node, changed(node, Table.NAT, chain.name, *reversed(chain.rules)))
    assert line == f"iptables IPv4 nat {chain.name}: its rules stand in another order, or twice"


def test_a_chain_that_is_gone_is_named(node: AskedNode):
    assert "iptables IPv4 nat KUBE-SERVICES: no such chain" in told(node, without(node, Table.NAT, "KUBE-SERVICES"))
    assert told(node, without(node, Table.NAT, "KUBE-PROXY-CANARY")) == [
        "iptables IPv4 nat KUBE-PROXY-CANARY: no such chain"
    ]


def test_a_jump_that_is_gone_is_named(node: AskedNode):
    [line] = told(node, changed(node, Table.NAT, "PREROUTING"))
    assert line.startswith("iptables IPv4 nat: lacks: -I PREROUTING 1")


def test_a_chain_of_nobody_is_named_with_rules_and_without(node: AskedNode):
    stranger = "KUBE-SVC-AAAAAAAAAAAAAAAA"
    ruleset = changed(node, Table.NAT, stranger)
    assert told(node, ruleset) == [f"iptables IPv4 nat {stranger}: chain of no Service port"]
    assert f"iptables IPv4 nat {stranger}: chain of no Service port" in list(remains(ruleset, Family.IPV4))
