"""What goes wrong on a host, and the next sync: working rules remain, one line says what happened, nothing is lost."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from kbpf.clock import FakeClock
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Completed, Flavour, Run
from kbpf.datapath.iptables.fake import FaultyRun
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import Ruleset, Table
from kbpf.datapath.iptables.trace import TraceNode, trace
from kbpf.errors import DatapathError, RulesLocked
from kbpf.model.address import Address, Family
from kbpf.model.flow import PASS, Action, Origin
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable
from tests.builders import flow, table_of
from tests.contract.iptables.hosts import SETTINGS, Host, meaning
from tests.contract.iptables.test_datapath import FOREIGN, NOTHING, WEB, change, flush, many_services, objects

FAILURES = {
    "killed": Completed(-9, "", ""),
    "a line that is refused": Completed(1, "", "iptables-restore: line 2 failed"),
    "the older words for it": Completed(1, "", "iptables-restore: error occurred at line: 2"),
    "an option that it does not know": Completed(2, "", "iptables-restore: unrecognized option '--noflush'"),
    "no such table": Completed(3, "", "can't initialize iptables table `nat': Table does not exist"),
    "short of something": Completed(4, "", "line 5: RULE_APPEND failed (Cannot allocate memory): rule in chain OUTPUT"),
    "the lock is held": Completed(4, "", "Another app is currently holding the xtables lock; still 0s 0us time ahead"),
    "too slow": Completed(124, "", "killed: not finished after 120 s"),
    "not executable": Completed(126, "", "Permission denied"),
    "no program any more": Completed(127, "", "no such program; it comes with the package iptables"),
}


def is_restore(argv: Sequence[str]) -> bool:
    return argv[0].endswith("-restore")


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_restore_is_one_line_and_the_last_good_rules_stay(host: Host, answer: Completed):
    table = table_of(*objects())
    is_broken = False
    datapath = host.datapath(FaultyRun(host.run, lambda _, argv: is_broken and is_restore(argv), answer=answer))
    datapath.sync(table, NOTHING, full=True)
    before = meaning(host.rules())
    is_broken = True
    dirty = change(table)
    for _ in range(3):
        with pytest.raises(DatapathError) as failed:
            datapath.sync(table, dirty, full=False)
        assert "\n" not in str(failed.value)
        assert "IPv4: iptables" in str(failed.value)
        assert isinstance(failed.value, RulesLocked) is ("lock" in answer.stderr)
    assert meaning(host.rules()) == before
    is_broken = False
    assert datapath.sync(table, dirty, full=False).full
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0


def killed_between_tables(run: Run) -> Run:
    """iptables-restore is killed when its first table is in the kernel and the others are not."""

    def half(argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        if not is_restore(argv):
            return run(argv, stdin, timeout_s)
        first, commit, _ = stdin.partition("COMMIT\n")
        run(argv, first + commit, timeout_s)
        return FAILURES["killed"]

    return half


def test_a_restore_that_is_killed_between_its_tables_is_completed_by_the_next_sync(host: Host):
    table = table_of(*objects())
    with pytest.raises(DatapathError, match="exit status -9"):
        host.datapath(killed_between_tables(host.run)).sync(table, NOTHING, full=True)
    assert host.datapath().sync(table, NOTHING, full=True).writes > 0
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0


@pytest.mark.parametrize("late", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("number", range(1, 6))
def test_a_restore_that_is_killed_is_made_good_by_the_next_sync(host: Host, number: int, late: bool):
    restores = 0

    def fails(_: int, argv: object) -> bool:
        nonlocal restores
        restores += "restore" in str(argv)
        return "restore" in str(argv) and restores == number

    run = FaultyRun(host.run, fails, answer=FAILURES["killed"], late=late)
    table = many_services(500)
    datapath = host.datapath(run)
    failures = 0
    for dirty in (NOTHING, change(table, *objects()), change(table), frozenset(table.services)):
        try:
            datapath.sync(table, dirty, full=False)
        except DatapathError:
            failures += 1
    assert failures <= 1
    datapath.sync(table, NOTHING, full=False)
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0


# -- kbpf itself is killed ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing of kbpf runs after it."""


def killed_before(number: int, run: Run) -> Run:
    """kbpf is killed before its restore with this number."""
    restores = 0

    def until(argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        nonlocal restores
        restores += is_restore(argv)
        if restores == number:
            raise Killed
        return run(argv, stdin, timeout_s)

    return until


def backends(rules: Ruleset, service: ServiceName, table: ServiceTable) -> set[str] | None:
    """Where the rules lead to from the Service's address; None: nowhere, they do not know it."""
    frontend = table.ports_of(service)[0].frontends[0]
    found = trace(rules, flow(Origin.POD, "10.244.1.9", frontend.address or ""), TraceNode()).verdict
    return {each.address for each in found.backends} if found.action is Action.FORWARD else None


def test_a_kbpf_that_is_killed_between_two_chunks_leaves_every_service_whole(host: Host):
    """Twenty services are there; then they move to other backends while many others come."""
    table = many_services(20)
    old = {service: {"10.244.1.1", "10.244.1.2"} for service in table.services}
    new = {"10.244.1.2", "10.244.1.3"}
    moved = many_services(420, sorted(new))
    watched = sorted(moved.services)[::140] + sorted(old)[:3]
    deaths = 0
    for number in itertools.count(1):
        host.datapath().cleanup()
        host.datapath().sync(table, NOTHING, full=True)
        try:
            host.datapath(killed_before(number, host.run)).sync(moved, NOTHING, full=True)
        except Killed:
            deaths += 1
        else:
            break
        rules = host.rules()
        assert all(backends(rules, service, moved) in (old.get(service), new) for service in watched)
        host.datapath().sync(moved, NOTHING, full=True)
        rules = host.rules()
        assert all(backends(rules, service, moved) == new for service in watched)
    assert deaths >= (5 if host.flavour is Flavour.NFT else 1)


# -- others change our rules -------------------------------------------------------------------------------------------

JUMP = '-m comment --comment "kubernetes service portals" -j KUBE-SERVICES'
MEDDLING: dict[str, tuple[str, str]] = {
    "a shared chain is emptied": ("*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n", "nat KUBE-SERVICES"),
    "a filter chain is emptied": ("*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n", "filter KUBE-FORWARD"),
    "the marking is emptied": ("*nat\n:KUBE-MARK-MASQ - [0:0]\nCOMMIT\n", "nat KUBE-MARK-MASQ"),
    "a rule is put into our chain": ("*nat\n-I KUBE-SERVICES 1 -j ACCEPT\nCOMMIT\n", "nat KUBE-SERVICES"),
    "a jump is deleted": (f"*nat\n-D PREROUTING {JUMP}\nCOMMIT\n", "nat -I PREROUTING 1"),
    "a jump is doubled": (f"*nat\n-I OUTPUT 1 {JUMP}\nCOMMIT\n", "nat -D OUTPUT"),
    "a canary is deleted": (
        "*mangle\n:KUBE-PROXY-CANARY - [0:0]\n-X KUBE-PROXY-CANARY\nCOMMIT\n",
        "mangle KUBE-PROXY-CANARY",
    ),
    "a chain like ours appears": ("*nat\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\nCOMMIT\n", "1 chains that are not wanted"),
}


@pytest.mark.parametrize(("text", "words"), MEDDLING.values(), ids=MEDDLING.keys())
def test_what_others_change_in_our_rules_is_put_back_and_named_in_one_line(host: Host, text: str, words: str):
    host.tool().restore(FOREIGN)
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    before = meaning(host.rules())
    host.tool().restore(text)
    assert meaning(host.rules()) != before
    (warning,) = datapath.sync(table, NOTHING, full=True).warnings
    assert warning.startswith("IPv4: another program changed our rules, put back: ")
    assert words in warning
    assert meaning(host.rules()) == before


def test_every_chain_of_ours_may_be_emptied(host: Host):
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    before = meaning(host.rules())
    own = [(name, chain) for name, chain in before if chain.startswith("KUBE-") and before[name, chain]]
    assert len(own) > 15
    for name, chain in own:
        host.tool().restore(f"*{name}\n:{chain} - [0:0]\nCOMMIT\n")
        assert len(datapath.sync(table, NOTHING, full=True).warnings) == 1
        assert meaning(host.rules()) == before


@pytest.mark.parametrize("name", ["nat", "filter", "mangle"])
@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_a_flushed_table_is_missed_by_the_cheap_look(host: Host, family: Family, name: str):
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    flush(host, Table(name), family)
    assert datapath.lost() == (f"{family.value} {name}: our chains",)
    datapath.sync(table, NOTHING, full=True)
    assert datapath.lost() == ()
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0


def flushing(when: int, run: Run, flush_now: Callable[[], None]) -> Run:
    """Another program flushes a table just before our restore with this number."""
    restores = 0

    def meddled(argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        nonlocal restores
        restores += is_restore(argv)
        if restores == when and is_restore(argv):
            flush_now()
        return run(argv, stdin, timeout_s)

    return meddled


@pytest.mark.parametrize("when", range(3, 7))
def test_a_table_that_is_flushed_between_our_read_and_our_write_is_repaired_by_the_next_look(host: Host, when: int):
    host.tool().restore(FOREIGN)
    foreign = meaning(host.rules())
    table = many_services(300)
    datapath = host.datapath(flushing(when, host.run, lambda: flush(host, Table.NAT)))
    datapath.sync(table_of(*objects()), NOTHING, full=True)
    try:
        datapath.sync(table, NOTHING, full=True)
    except DatapathError as error:
        assert "\n" not in str(error)  # noqa: PT017  (whether it fails depends on the flavour's chunks)
    datapath.sync(table, NOTHING, full=True)
    assert host.datapath().sync(table, NOTHING, full=True).writes == 0
    kept = {place: rules for place, rules in foreign.items() if place[0] == "filter" and place[1] == "BLOCKED"}
    assert meaning(host.rules()).items() >= kept.items()


def test_foreign_rules_and_ours_change_side_by_side_many_times(host: Host):
    """Another agent adds and removes rules of its own between our syncs, in chains named much like ours."""
    table = table_of(*objects())
    datapath = host.datapath()
    datapath.sync(table, NOTHING, full=True)
    for number in range(30):
        theirs = f"-A KUBE-SVC-LIKE -s 10.0.{number}.0/24 -j RETURN"
        host.tool().restore(
            f"*nat\n:KUBE-SVC-LIKE - [0:0]\n{theirs}\n-A POSTROUTING -s 10.9.{number}.1 -j ACCEPT\nCOMMIT\n"
        )
        dirty = change(table, *(objects() if number % 2 else ()))
        datapath.sync(table, dirty, full=number % 7 == 0)
        rules = host.rules()[Table.NAT]
        assert [parse_rule(rule) for rule in rules["KUBE-SVC-LIKE"].rules] == [parse_rule(theirs)]
    assert sum("10.9." in rule for rule in rules["POSTROUTING"].rules) == 30


# -- what earlier proxies left -----------------------------------------------------------------------------------------

EARLIER = """*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "shop/web has no endpoints" -m tcp --dport 80 -j REJECT
-A FORWARD -j KUBE-SERVICES
COMMIT
*nat
:KUBE-POSTROUTING - [0:0]
-A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
COMMIT
"""


def test_verdicts_of_an_earlier_proxy_do_not_outlive_the_first_sync(host: Host):
    """Its REJECT would beat ours, and its masquerade would meet packets twice."""
    host.tool().restore(EARLIER)
    table = table_of(*objects())
    host.datapath().sync(table, NOTHING, full=True)
    assert backends(host.rules(), WEB, table) == {"10.244.1.5", "10.244.2.7"}
    assert not any("0x4000/0x4000 -j MASQ" in rule for rule in host.rules()[Table.NAT]["KUBE-POSTROUTING"].rules)


def test_rules_of_former_settings_do_not_outlive_a_restart(host: Host):
    table = table_of(*objects())
    host.datapath().sync(table, NOTHING, full=True)
    narrowed = replace(
        SETTINGS, node_port_addresses={Family.IPV4: (Address("192.168.50.11"),)}, localhost_node_ports=False
    )
    IptablesDatapath(narrowed, FakeClock(), flavour=host.flavour, run=host.run).sync(table, NOTHING, full=True)
    rules = host.rules()
    assert trace(rules, flow(Origin.HOST, "127.0.0.1", "127.0.0.1", 30080), TraceNode()).verdict == PASS
    assert not any("LOCAL" in rule for rule in rules[Table.NAT]["KUBE-SERVICES"].rules)
