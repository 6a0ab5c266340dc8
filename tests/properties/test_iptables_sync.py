"""Whatever the table was before, whatever failed on the way: the kernel ends up with what the table says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kbpf.clock import FakeClock
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Completed, Run
from kbpf.datapath.iptables.fake import FakeIptables, FaultyRun
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.errors import DatapathError
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable
from tests.properties.tables import tables

FAILED = Completed(1, "", "iptables-restore: line 1 failed")


def datapath(run: Run, *, is_residue: bool = False) -> IptablesDatapath:
    return IptablesDatapath(IptablesSettings(is_residue=is_residue), FakeClock(), run=run)


def follow(table: ServiceTable, target: ServiceTable) -> frozenset[ServiceName]:
    """Make `table` equal to `target`; returns what the proxier would call dirty."""
    dirty = frozenset[ServiceName]()
    for service in {*table.services, *target.services}:
        if table.ports_of(service) != target.ports_of(service):
            dirty |= table.replace(service, target.ports_of(service))
    return dirty


histories = st.sampled_from(Family).flatmap(lambda family: st.lists(tables(family), min_size=1, max_size=4))


@settings(max_examples=100, deadline=None)
@given(histories, st.booleans())
def test_partial_syncs_end_where_a_full_one_would(history: list[ServiceTable], is_residue: bool):
    fake = FakeIptables()
    table, running = ServiceTable(), datapath(fake, is_residue=is_residue)
    running.sync(table, frozenset(), full=True)
    for target in history:
        running.sync(table, follow(table, target), full=False)
        assert datapath(fake, is_residue=is_residue).sync(table, frozenset(), full=True).writes == 0


@settings(max_examples=100, deadline=None)
@given(histories, st.sets(st.integers(1, 12)), st.booleans())
def test_failures_on_the_way_leave_no_trace(history: list[ServiceTable], failing: set[int], late: bool):
    fake = FakeIptables()
    restores = 0

    def fails(_: int, argv: object) -> bool:
        nonlocal restores
        restores += "restore" in str(argv)
        return "restore" in str(argv) and restores in failing

    table, running = ServiceTable(), datapath(FaultyRun(fake, fails, answer=FAILED, late=late))
    dirty = frozenset[ServiceName]()
    for target in [*history, *[history[-1]] * (len(failing) + 1)]:
        dirty |= follow(table, target)
        try:
            running.sync(table, dirty, full=False)
        except DatapathError:
            continue
        dirty = frozenset()
    assert datapath(fake).sync(table, frozenset(), full=True).writes == 0


@settings(max_examples=50, deadline=None)
@given(histories)
def test_nothing_is_left_after_cleanup(history: list[ServiceTable]):
    fake = FakeIptables()
    running = datapath(fake)
    for table in history:
        running.sync(table, frozenset(table.services), full=True)
    running.cleanup()
    assert running.dump() == ""
    assert all(not rules for chains in fake.tables().values() for rules in chains.values())
