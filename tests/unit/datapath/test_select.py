"""Which datapath runs, and the change to the other one: make before break."""

import pytest

from kbpf.datapath.interface import Answer, Datapath, Support, SyncReport
from kbpf.datapath.select import FallingBackDatapath, ReplacingDatapath, preferred
from kbpf.errors import DatapathError, DatapathUnavailable, LoadFailed, MapError
from tests.builders import endpoint_slice, service, table_of
from tests.logs import capture_logs
from tests.recording import RecordingDatapath

YES, NO, UNKNOWN = Support(Answer.YES), Support(Answer.NO, "bpffs: not mounted"), Support(Answer.UNKNOWN, "EPERM")
TABLE = table_of(service(), endpoint_slice("web", "10.42.1.5"))
ALL = frozenset(TABLE.services)


@pytest.mark.parametrize(
    ("wish", "support", "datapath"),
    [
        ("auto", YES, "ebpf"),
        ("auto", UNKNOWN, "ebpf"),
        ("auto", NO, "iptables"),
        ("ebpf", YES, "ebpf"),
        ("ebpf", NO, "iptables"),
        ("iptables", YES, "iptables"),
    ],
)
def test_the_choice(wish: str, support: Support, datapath: str):
    assert preferred(wish, True, support)[0] == datapath


def test_the_reason_names_the_missing_feature():
    assert preferred("auto", True, NO)[1] == "eBPF is unavailable: bpffs: not mounted"


def test_without_a_fallback_the_missing_feature_is_an_error():
    with pytest.raises(DatapathUnavailable, match="bpffs: not mounted"):
        preferred("auto", False, NO)


def test_without_a_fallback_a_wish_for_iptables_is_no_contradiction():
    assert preferred("iptables", False, NO)[0] == "iptables"


def sync(datapath: Datapath) -> SyncReport:
    return datapath.sync(TABLE, ALL, full=False)


# -- replacing


@pytest.fixture
def iptables() -> RecordingDatapath:
    return RecordingDatapath("iptables")


@pytest.fixture
def ebpf() -> RecordingDatapath:
    return RecordingDatapath("ebpf")


def test_what_another_datapath_left_retires_after_the_first_sync_and_once(iptables, ebpf):
    replacing = ReplacingDatapath(iptables, ebpf)
    assert replacing.lost() == ()
    assert ebpf.retirements == 0
    sync(replacing)
    sync(replacing)
    replacing.lost()
    assert ebpf.retirements == 1


def test_what_still_carries_connections_is_asked_once_a_sync_period_until_it_is_gone(iptables, ebpf):
    ebpf.is_busy = True
    replacing = ReplacingDatapath(iptables, ebpf)
    sync(replacing)
    sync(replacing)
    assert ebpf.retirements == 1
    replacing.lost()
    ebpf.is_busy = False
    replacing.lost()
    replacing.lost()
    assert ebpf.retirements == 3


def test_a_first_sync_that_fails_removes_nothing(iptables, ebpf):
    iptables.failures.append(DatapathError("lock"))
    with pytest.raises(DatapathError, match="lock"):
        sync(ReplacingDatapath(iptables, ebpf))
    assert ebpf.retirements == 0


def test_leftovers_that_cannot_be_removed_are_a_warning(iptables, ebpf):
    ebpf.retirement_failure = DatapathError("links: busy")
    with capture_logs() as logs:
        sync(ReplacingDatapath(iptables, ebpf))
    assert [entry["log_level"] for entry in logs] == ["warning"]


def test_what_is_lost_is_asked_of_the_datapath_in_charge(iptables, ebpf):
    ebpf.missing, iptables.missing = ("the programs",), ("IPv4 nat: our chains",)
    datapath = FallingBackDatapath(ebpf, ReplacingDatapath(iptables, ebpf))
    assert datapath.lost() == ("the programs",)
    ebpf.failures.append(LoadFailed("no"))
    sync(datapath)
    assert datapath.lost() == ("IPv4 nat: our chains",)


# -- falling back


def test_programs_that_do_not_load_hand_over_at_once_and_completely(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, iptables)
    ebpf.failures.append(LoadFailed("clang: no"))
    with capture_logs() as logs:
        report = sync(datapath)
    assert report.datapath == datapath.name == "iptables"
    assert iptables.syncs == [(ALL, True)]
    assert [entry["event"] for entry in logs] == ["running iptables: ebpf failed: clang: no"]


def test_programs_that_worked_and_do_not_load_any_more_are_loaded_anew_once(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, iptables)
    sync(datapath)
    ebpf.failures.append(LoadFailed("links: gone"))
    assert sync(datapath).datapath == "ebpf"
    assert ebpf.syncs[-1] == (ALL, True)
    ebpf.failures += [LoadFailed("links: gone"), LoadFailed("links: gone")]
    assert sync(datapath).datapath == "iptables"


def test_one_failed_write_is_retried_and_a_third_in_a_row_hands_over(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, iptables)
    ebpf.failures += [MapError("no"), MapError("no"), MapError("no")]
    for _ in range(2):
        with pytest.raises(MapError):
            sync(datapath)
    assert sync(datapath).datapath == "iptables"


def test_a_success_forgets_earlier_failures(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, iptables)
    for _ in range(3):
        ebpf.failures += [MapError("no"), MapError("no")]
        for _ in range(2):
            with pytest.raises(MapError):
                sync(datapath)
        assert sync(datapath).datapath == "ebpf"


def test_when_the_fallback_fails_too_the_first_datapath_stays_in_charge(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, iptables)
    ebpf.failures.append(LoadFailed("no"))
    iptables.failures.append(DatapathError("lock"))
    with pytest.raises(DatapathError, match="lock"):
        sync(datapath)
    assert datapath.name == "ebpf"


def test_the_first_datapath_is_taken_down_only_after_the_fallback_carries_everything(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, ReplacingDatapath(iptables, ebpf))
    ebpf.failures.append(LoadFailed("no"))
    sync(datapath)
    assert (iptables.held.keys(), ebpf.retirements) == ({*ALL}, 1)


def test_nothing_is_behind_the_fallback(iptables, ebpf):
    datapath = FallingBackDatapath(ebpf, iptables)
    ebpf.failures.append(LoadFailed("no"))
    sync(datapath)
    iptables.failures.append(LoadFailed("odd"))
    with pytest.raises(LoadFailed, match="odd"):
        sync(datapath)
