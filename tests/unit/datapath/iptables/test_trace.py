"""The walk of one packet: hooks, jumps and returns, chance, marks. Agreement with the policy is a property test."""

import pytest

from kbpf.datapath.iptables.ruleset import parse_save
from kbpf.datapath.iptables.trace import TraceError, TraceNode, trace
from kbpf.model.address import Address
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Origin, Verdict
from kbpf.model.table import Backend
from tests.builders import flow

NODE = TraceNode(frozenset({Address("192.168.60.11")}))
POD = flow(Origin.POD, "10.42.1.9", "10.96.0.10")
HOST = flow(Origin.HOST, "192.168.60.11", "10.96.0.10")
A, B = Backend(Address("10.42.1.1"), 8080), Backend(Address("10.42.1.2"), 8080)
DNAT_A, DNAT_B = (f"-p tcp -j DNAT --to-destination {each.address}:{each.port}" for each in (A, B))


def verdict(rules: str, question: Flow = POD) -> Verdict:
    return trace(parse_save(rules), question, NODE).verdict


def nat(*lines: str) -> str:
    return "\n".join(["*nat", *lines, "COMMIT", ""])


def test_no_rules_leave_the_flow_alone():
    assert verdict("") == PASS


def test_both_ways_of_a_choice_are_followed():
    chance = "-m statistic --mode random --probability 0.5000000000"
    rules = nat("-A PREROUTING -j S", f"-A S {chance} {DNAT_A}", f"-A S {DNAT_B}")
    assert verdict(rules) == Verdict(Action.FORWARD, frozenset({A, B}))


def test_a_host_process_meets_output_and_not_prerouting():
    assert verdict(nat(f"-A OUTPUT {DNAT_A}"), HOST).action is Action.FORWARD
    assert verdict(nat(f"-A PREROUTING {DNAT_A}"), HOST) == PASS


def test_return_goes_back_to_the_caller():
    rules = nat("-A PREROUTING -j S", f"-A PREROUTING {DNAT_B}", "-A S -s 10.42.0.0/16 -j RETURN", f"-A S {DNAT_A}")
    assert verdict(rules).backends == {B}


def test_a_mark_survives_from_nat_to_postrouting():
    rules = nat(
        "-A PREROUTING -j MARK --or-mark 0x4000",
        f"-A PREROUTING {DNAT_A}",
        "-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
        "-A POSTROUTING -j MASQUERADE",
    )
    assert verdict(rules).masquerade


def test_filter_sees_the_translated_destination():
    rules = nat(f"-A PREROUTING {DNAT_A}") + "*filter\n-A FORWARD -d 10.96.0.10 -j REJECT\nCOMMIT\n"
    assert verdict(rules).backends == {A}
    assert verdict("*filter\n-A FORWARD -d 10.96.0.10 -j REJECT\nCOMMIT\n") == REJECT


def test_a_packet_for_the_node_itself_meets_input():
    rules = "*filter\n-A INPUT -p tcp --dport 30080 -j DROP\nCOMMIT\n"
    assert verdict(rules, flow(Origin.OUTSIDE, "198.51.100.7", "192.168.60.11", 30080)) == DROP
    assert verdict(rules, flow(Origin.HOST, "192.168.60.11", "192.168.60.11", 30080)) == DROP
    assert verdict(rules, flow(Origin.OUTSIDE, "198.51.100.7", "192.168.60.12", 30080)) == PASS


def test_interfaces_match_by_name_and_by_prefix():
    node = TraceNode(pod_interface="cali7", uplink="eth0")
    for match, origins in {"-i cali7": {Origin.POD}, "-i cali+": {Origin.POD}, "! -i cali+": {Origin.OUTSIDE}}.items():
        rules = parse_save(nat(f"-A PREROUTING {match} {DNAT_A}"))
        matching = {
            origin
            for origin in (Origin.POD, Origin.OUTSIDE)
            if trace(rules, flow(origin, "10.42.1.9", "10.96.0.10"), node).verdict != PASS
        }
        assert matching == origins


def test_foreign_rules_that_are_not_understood_are_passed_by():
    assert verdict(
        nat("-A PREROUTING -m set --match-set blocked src -j ACCEPT", f"-A PREROUTING {DNAT_A}")
    ).backends == {A}


def test_the_rules_that_were_taken_are_told_in_order():
    rules = nat("-A PREROUTING -j S", "-A S -d 10.96.0.99 -j DROP", f"-A S {DNAT_A}")
    assert trace(parse_save(rules), POD, NODE).rules == ("nat -A PREROUTING -j S", f"nat -A S {DNAT_A}")


@pytest.mark.parametrize(
    "rules",
    [
        nat(f"-A PREROUTING -m statistic --mode random --probability 0.5 {DNAT_A}"),
        nat(
            "-A PREROUTING -m statistic --mode random --probability 0.5 -j MARK --or-mark 0x1",
            f"-A PREROUTING {DNAT_A}",
            "-A POSTROUTING -m mark --mark 0x1/0x1 -j MASQUERADE",
        ),
    ],
    ids=["forwarded or not", "masqueraded or not"],
)
def test_rules_that_leave_the_outcome_to_chance_are_an_error(rules: str):
    with pytest.raises(TraceError, match="leave it to chance"):
        verdict(rules)
