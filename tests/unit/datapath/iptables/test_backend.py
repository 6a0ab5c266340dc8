"""The datapath as the proxier sees it: one report, one error, one warning, no process without need."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from kbpf.clock import FakeClock
from kbpf.datapath.interface import Answer
from kbpf.datapath.iptables.backend import FRESH_S, IptablesDatapath
from kbpf.datapath.iptables.commands import Completed, Run
from kbpf.datapath.iptables.fake import FakeIptables, FaultyRun
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.errors import DatapathError, DatapathUnavailable, RulesLocked
from kbpf.model.address import Address, Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, port, service, service_name, table_of

WEB, API = service_name("web"), service_name("api")
NOTHING: frozenset[ServiceName] = frozenset()
LOCK_HELD = Completed(4, "", "Another app is currently holding the xtables lock; still 0s 0us time ahead")


def web_table() -> ServiceTable:
    return table_of(
        service("web", port(80, node_port=30080), cluster_ips=["10.96.0.10", "fd96::10"], type="NodePort"),
        endpoint_slice("web", "10.42.1.1", "10.42.1.2"),
        endpoint_slice("web", "fd42:1::1", family="IPv6"),
    )


def make(run: Run, settings: IptablesSettings = IptablesSettings()) -> IptablesDatapath:  # noqa: B008  (frozen)
    return IptablesDatapath(settings, FakeClock(), run=run)


def fails_for(program: str) -> Callable[[int, Sequence[str]], bool]:
    def fails(number: int, argv: Sequence[str]) -> bool:
        return argv[0] == program

    return fails


def test_the_first_sync_is_a_full_one():
    report = make(FakeIptables()).sync(web_table(), NOTHING, full=False)
    assert report.full
    assert report.datapath == "iptables"
    assert report.services == 1
    assert report.writes > 40


def test_a_partial_sync_without_a_change_starts_no_process():
    fake = FakeIptables()
    datapath, table = make(fake), web_table()
    datapath.sync(table, NOTHING, full=True)
    calls = len(fake.calls)
    report = datapath.sync(table, frozenset({WEB}), full=False)
    assert (report.writes, report.full, report.services) == (0, False, 1)
    assert len(fake.calls) == calls


def test_a_partial_sync_starts_one_process_for_the_family_that_changed():
    fake = FakeIptables()
    datapath, table = make(fake), web_table()
    datapath.sync(table, NOTHING, full=True)
    calls = len(fake.calls)
    dirty = table.replace(WEB, tuple(each for each in table.ports_of(WEB) if each.family is Family.IPV6))
    datapath.sync(table, dirty, full=False)
    assert [argv[0] for argv in fake.calls[calls:]] == ["iptables-nft-restore"]


def test_a_family_that_fails_is_named_and_the_other_one_is_written():
    fake = FakeIptables()
    answer = Completed(1, "", "iptables-restore: line 3 failed")
    datapath = make(FaultyRun(fake, fails_for("iptables-nft-restore"), answer=answer))
    with pytest.raises(DatapathError, match=r"^IPv4: iptables-nft-restore .*line 3 failed") as failed:
        datapath.sync(web_table(), NOTHING, full=True)
    assert "IPv6" not in str(failed.value)
    assert "KUBE-SERVICES" in fake.tables(Family.IPV6)["nat"]
    assert "nat" not in fake.tables(Family.IPV4)


def test_a_lock_that_stays_held_is_an_error_with_the_words_of_iptables_and_the_next_sync_is_full():
    fake = FakeIptables()
    run = FaultyRun(fake, lambda number, argv: "-restore" in argv[0] and number < 20, answer=LOCK_HELD)
    datapath, table = make(run), web_table()
    with pytest.raises(RulesLocked, match=r"^IPv4: iptables-nft: another program holds the lock .*Another app"):
        datapath.sync(table, NOTHING, full=True)
    run.count = 20
    report = datapath.sync(table, frozenset({WEB}), full=False)
    assert report.full
    assert report.writes > 40


def test_one_lock_is_waited_for_once_not_for_each_family():
    fake = FakeIptables()
    datapath = make(FaultyRun(fake, lambda number, argv: "-restore" in argv[0], answer=LOCK_HELD))
    with pytest.raises(RulesLocked):
        datapath.sync(web_table(), NOTHING, full=True)
    assert not any("ip6tables-nft-restore" in argv for argv in fake.calls)


def test_a_lock_that_is_held_at_the_start_leaves_no_family_out():
    fake = FakeIptables()
    is_held = True
    datapath = make(FaultyRun(fake, lambda number, argv: "-S" in argv and is_held, answer=LOCK_HELD))
    assert datapath.probe().answer is Answer.UNKNOWN
    with pytest.raises(RulesLocked):
        datapath.sync(web_table(), NOTHING, full=True)
    is_held = False
    assert datapath.sync(web_table(), NOTHING, full=True).warnings == ()
    assert "KUBE-SERVICES" in fake.tables(Family.IPV6)["nat"]


def test_a_look_for_what_is_lost_waits_for_the_lock_once():
    fake = FakeIptables()
    is_held = False
    run = FaultyRun(fake, lambda number, argv: is_held, answer=LOCK_HELD)
    datapath = make(run)
    datapath.sync(web_table(), NOTHING, full=True)
    is_held, before = True, run.count
    assert datapath.lost() == ()
    assert run.count == before + 1


def test_a_resource_problem_that_is_no_lock_is_an_ordinary_failure():
    answer = Completed(4, "", "iptables-restore: line 5: RULE_APPEND failed (Invalid argument)")
    datapath = make(FaultyRun(FakeIptables(), fails_for("iptables-nft-restore"), answer=answer))
    with pytest.raises(DatapathError) as failed:
        datapath.sync(web_table(), NOTHING, full=True)
    assert not isinstance(failed.value, RulesLocked)


def test_a_partial_sync_that_is_refused_becomes_a_full_one_and_says_so():
    fake = FakeIptables()
    datapath, table = make(fake), web_table()
    datapath.sync(table, NOTHING, full=True)
    del fake.tables()["nat"]
    fewer = web_table().ports_of(WEB)[0]
    dirty = table.replace(WEB, (msgspec.structs.replace(fewer, cluster=fewer.cluster[:1]),))
    report = datapath.sync(table, dirty, full=False)
    assert report.full
    (warning,) = report.warnings
    assert warning.startswith("IPv4: rules were not as we left them, so everything was compared; a partial sync got: ")
    assert make(fake).sync(table, NOTHING, full=True).writes == 0


def test_a_lock_during_a_partial_sync_is_no_reason_to_compare_everything():
    fake = FakeIptables()
    run = FaultyRun(fake, lambda number, argv: "-restore" in argv[0] and number > 30, answer=LOCK_HELD)
    datapath, table = make(run), web_table()
    datapath.sync(table, NOTHING, full=True)
    run.count = 30
    with pytest.raises(RulesLocked):
        datapath.sync(table, table.replace(WEB, ()), full=False)
    assert run.count == 31


def test_what_another_program_changed_is_named_when_a_full_sync_puts_it_back():
    fake = FakeIptables()
    datapath, table = make(fake), web_table()
    datapath.sync(table, NOTHING, full=True)
    fake.tables()["nat"]["KUBE-SERVICES"].clear()
    fake.tables()["nat"]["OUTPUT"].clear()
    (warning,) = datapath.sync(table, NOTHING, full=True).warnings
    assert warning == (
        "IPv4: another program changed our rules, put back: nat KUBE-SERVICES, "
        'nat -I OUTPUT 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES'
    )
    assert datapath.sync(table, NOTHING, full=True).writes == 0


def test_what_we_change_ourselves_in_a_full_sync_is_not_blamed_on_others():
    datapath, table = make(FakeIptables()), web_table()
    datapath.sync(table, NOTHING, full=True)
    table.replace(WEB, ())
    report = datapath.sync(table, NOTHING, full=True)
    assert report.writes > 0
    assert report.warnings == ()


# -- large clusters


class LargeHost:
    """In a cluster that counts as large: two Services, one of which comes and goes."""

    def __init__(self, *, large: int = 0) -> None:
        self.fake, self.clock, self.table = FakeIptables(), FakeClock(), web_table()
        self.api = table_of(service("api", cluster_ips=["10.96.0.11"]), endpoint_slice("api", "10.42.1.7"))
        settings = IptablesSettings(large_cluster_endpoints=large, sync_period_s=30)
        self.datapath = IptablesDatapath(settings, self.clock, families=(Family.IPV4,), run=self.fake)
        self.api_comes()
        self.datapath.sync(self.table, NOTHING, full=True)

    def api_comes(self) -> frozenset[ServiceName]:
        return self.table.replace(API, self.api.ports_of(API))

    def api_goes(self) -> None:
        self.datapath.sync(self.table, self.table.replace(API, ()), full=False)

    @property
    def api_chains(self) -> int:
        return sum("10.42.1.7" in str(rules) for rules in self.fake.tables()["nat"].values())


def test_in_a_large_cluster_chains_of_what_is_gone_are_deleted_once_in_a_sync_period():
    host = LargeHost()
    host.api_goes()
    assert host.api_chains == 1
    host.clock.advance(30)
    host.datapath.sync(host.table, NOTHING, full=False)
    assert host.api_chains == 0


def test_a_chain_that_waits_for_its_deletion_and_is_wanted_again_stays():
    host = LargeHost()
    host.api_goes()
    host.datapath.sync(host.table, host.api_comes(), full=False)
    host.clock.advance(30)
    host.datapath.sync(host.table, NOTHING, full=False)
    assert host.api_chains == 1


def test_chains_that_wait_for_their_deletion_are_not_blamed_on_others():
    host = LargeHost()
    host.api_goes()
    host.datapath.sync(host.table, NOTHING, full=True)
    assert host.datapath.sync(host.table, NOTHING, full=True).warnings == ()
    host.clock.advance(30)
    assert host.datapath.sync(host.table, NOTHING, full=True).warnings == ()
    assert host.api_chains == 0


def test_in_other_clusters_chains_go_with_their_service():
    host = LargeHost(large=1000)
    host.api_goes()
    assert host.api_chains == 0


def test_a_family_that_does_not_work_here_is_one_warning_and_the_other_goes_on():
    datapath = make(FakeIptables(no_nat="IPv6"))
    report = datapath.sync(web_table(), NOTHING, full=True)
    assert report.warnings[0].startswith("IPv6 is left out: ")
    assert datapath.sync(web_table(), NOTHING, full=True).warnings == ()


def test_without_iptables_the_datapath_is_unavailable():
    datapath = make(lambda argv, stdin, timeout_s: Completed(127, "", ""))
    assert datapath.probe().answer is Answer.NO
    with pytest.raises(DatapathUnavailable, match="package iptables"):
        datapath.sync(ServiceTable(), NOTHING, full=True)
    datapath.cleanup()


def test_the_probe_names_the_programs_of_each_family_and_changes_nothing():
    fake = FakeIptables(no_nat="IPv6")
    support = make(fake).probe()
    assert support.answer is Answer.YES
    assert [(feature.name, feature.answer) for feature in support.features] == [
        ("iptables IPv4", Answer.YES),
        ("iptables IPv6", Answer.NO),
    ]
    assert support.features[0].reason == "iptables-nft 1.8.9"
    assert not any("restore" in argv[0] for argv in fake.calls)


@pytest.mark.parametrize(("later_s", "looks"), [(FRESH_S / 2, 1), (FRESH_S, 2)])
def test_what_the_probe_found_just_now_needs_no_second_look(later_s: float, looks: int):
    fake, clock = FakeIptables(), FakeClock()
    datapath = IptablesDatapath(IptablesSettings(), clock, run=fake)
    datapath.probe()
    clock.advance(later_s)
    datapath.sync(web_table(), NOTHING, full=True)
    assert fake.calls.count(("iptables-nft", "--version")) == looks


def test_a_service_that_cannot_be_written_is_left_out_with_a_warning():
    table = web_table()
    name = ServiceName("shop", 'evil" -j ACCEPT')
    (other,) = table_of(service("other", cluster_ips=["10.96.0.99"])).ports_of(service_name("other"))
    table.replace(name, (msgspec.structs.replace(other, name=other.name._replace(service=name)),))
    fake = FakeIptables()
    (warning,) = make(fake).sync(table, NOTHING, full=True).warnings
    assert "left out" in warning
    assert "10.96.0.99" not in str(fake.tables())


def test_new_node_port_addresses_are_written_by_the_next_sync():
    fake = FakeIptables()
    datapath, table = make(fake), web_table()
    datapath.sync(table, NOTHING, full=True)
    datapath.configure(IptablesSettings(node_port_addresses={Family.IPV4: (Address("192.168.60.11"),)}))
    report = datapath.sync(table, NOTHING, full=False)
    assert report.full
    assert "192.168.60.11" in datapath.dump()
    datapath.configure(IptablesSettings(node_port_addresses={Family.IPV4: (Address("192.168.60.11"),)}))
    assert not datapath.sync(table, NOTHING, full=False).full


def test_cleanup_goes_on_after_an_error_and_covers_the_flavour_that_is_not_in_use():
    fake = FakeIptables()
    for flavour in ("nft", "legacy"):
        chain = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"
        fake([f"iptables-{flavour}-restore", "-w", "5", "--noflush", "--counters"], chain, 1)
    run = FaultyRun(fake, fails_for("iptables-nft-save"), answer=Completed(1, "", "no"))
    with pytest.raises(DatapathError, match=r"^IPv4: iptables-nft-save: exit status 1: no$"):
        make(run).cleanup()
    make(fake).cleanup()
    assert "KUBE-SERVICES" not in fake(["iptables-legacy-save"], "", 1).stdout
    assert "KUBE-SERVICES" not in fake(["iptables-nft-save"], "", 1).stdout
