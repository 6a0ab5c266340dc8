"""The programs: what they take, refuse and print."""

import fcntl
from pathlib import Path
from threading import Event, Timer

import pytest

from kbpf.datapath.iptables.commands import Flavour
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import ChainKey, Table, parse_save
from kbpf.demo.namespaces import Namespace
from kbpf.errors import CommandFailed
from kbpf.model.address import Family
from tests.conftest import GOLDEN
from tests.contract.iptables.hosts import Host, meaning, real_host

EXAMPLES = sorted((GOLDEN / "iptables").glob("*.rules"))
CANARY = ChainKey(Table.NAT, "KUBE-PROXY-CANARY")


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
def test_what_was_restored_is_saved_with_the_same_meaning(host: Host, example: Path):
    text = example.read_text()
    tool = host.tool(Family.IPV6 if "ipv6" in example.stem else Family.IPV4)
    tool.restore(text)
    assert meaning(parse_save(tool.save())) == meaning(parse_save(text))


BASE = """*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-34ZZ2QFGO32YYXXO - [0:0]
-A KUBE-SERVICES -d 10.96.0.1 -j KUBE-SVC-34ZZ2QFGO32YYXXO
COMMIT
"""

REFUSED = {
    "a jump to a missing chain": "-A KUBE-SERVICES -j KUBE-NOWHERE",
    "a rule for a missing chain": "-A KUBE-NOWHERE -j ACCEPT",
    "a match that does not exist": "-A KUBE-SERVICES -m nonesuch -j ACCEPT",
    "an option that does not exist": "-A KUBE-SERVICES --nonesuch 1 -j ACCEPT",
    "a port without a protocol": "-A KUBE-SERVICES --dport 80 -j ACCEPT",
    "a target that the table does not know": "-A KUBE-SERVICES -j NONESUCH",
    "deleting a chain that is jumped to": "-X KUBE-SVC-34ZZ2QFGO32YYXXO",
    "deleting a chain that holds rules": "-X KUBE-SERVICES",
    "deleting a chain that does not exist": "-X KUBE-NOWHERE",
    "deleting a built-in chain": "-X OUTPUT",
    "deleting a rule that does not exist": "-D KUBE-SERVICES -d 10.96.0.9 -j ACCEPT",
    "a chain name that is too long": f":{'K' * 29} - [0:0]",
    "something else": "hello",
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_line_leaves_the_whole_table_as_it_was(host: Host, line: str):
    tool = host.tool()
    tool.restore(BASE)
    before = meaning(host.rules())
    with pytest.raises(CommandFailed):
        tool.restore(f"*nat\n:KUBE-NEW - [0:0]\n-A KUBE-SERVICES -j ACCEPT\n{line}\nCOMMIT\n")
    assert meaning(host.rules()) == before


def test_a_refused_line_is_shown_with_its_neighbours(host: Host):
    with pytest.raises(CommandFailed, match=r"input: .*3: -A KUBE-SERVICES -m nonesuch"):
        host.tool().restore("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m nonesuch -j ACCEPT\nCOMMIT\n")


def test_a_table_is_taken_even_if_a_later_one_is_refused(host: Host):
    with pytest.raises(CommandFailed):
        host.tool().restore("*filter\n:KUBE-A - [0:0]\nCOMMIT\n*nat\n:KUBE-B - [0:0]\n-A KUBE-B -j KUBE-C\nCOMMIT\n")
    assert meaning(host.rules()) == {("filter", "KUBE-A"): []}


def test_an_input_without_its_commit_changes_nothing(host: Host):
    host.tool().restore(BASE)
    with pytest.raises(CommandFailed):
        host.tool().restore("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m nonesuch -j ACCEPT\n")
    assert host.rules()[Table.NAT]["KUBE-SERVICES"].rules


def test_a_chain_line_empties_the_chain_and_an_emptied_chain_can_be_deleted(host: Host):
    host.tool().restore(BASE)
    host.tool().restore(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-34ZZ2QFGO32YYXXO - [0:0]\n-X KUBE-SVC-34ZZ2QFGO32YYXXO\nCOMMIT\n"
    )
    assert meaning(host.rules()) == {("nat", "KUBE-SERVICES"): []}


def test_rules_are_inserted_at_the_top_and_deleted_by_what_they_say(host: Host):
    host.tool().restore(f"{BASE}*nat\n-I OUTPUT 1 -j KUBE-SERVICES\n-I OUTPUT 1 -d 10.0.0.1 -j ACCEPT\nCOMMIT\n")
    rules = host.rules()[Table.NAT]["OUTPUT"].rules
    assert [parse_rule(rule).target for rule in rules] == ["ACCEPT", "KUBE-SERVICES"]
    host.tool().restore("*nat\n-D OUTPUT -d 10.0.0.1/32 -j ACCEPT\nCOMMIT\n")
    assert len(host.rules()[Table.NAT]["OUTPUT"].rules) == 1


def test_only_a_chain_that_is_gone_is_lacking(host: Host):
    assert host.tool().lacks(CANARY)
    host.tool().restore("*nat\n:KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n")
    assert not host.tool().lacks(CANARY)


@pytest.mark.root
def test_a_lock_that_another_program_holds_for_a_moment_is_waited_for(namespace: Namespace):
    tool = real_host(namespace, Flavour.LEGACY).tool()
    released = Event()

    def release() -> None:
        released.set()
        fcntl.flock(lock, fcntl.LOCK_UN)

    with Path("/run/xtables.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer = Timer(0.3, release)
        timer.start()
        tool.restore(BASE)
        assert released.is_set()
        timer.join()
