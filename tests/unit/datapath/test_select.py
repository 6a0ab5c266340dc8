"""Which datapath runs, and the change to the other one: make before break."""

import pytest
from structlog.testing import capture_logs

from kbpf.datapath.interface import Answer, Support
from kbpf.datapath.select import SwitchingDatapath, preferred
from kbpf.errors import DatapathError, DatapathUnavailable, LoadFailed, MapError
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, service, table_of
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


class Rig:
    def __init__(self, may_fall_back: bool = True) -> None:
        self.ebpf, self.iptables = RecordingDatapath("ebpf"), RecordingDatapath("iptables")
        self.switching = SwitchingDatapath(self.ebpf, self.iptables, may_fall_back=may_fall_back)

    def sync(self, table: ServiceTable = TABLE):
        return self.switching.sync(table, ALL, full=False)


def test_the_leftovers_of_the_other_datapath_go_after_the_first_sync_and_once():
    rig = Rig()
    rig.sync()
    rig.sync()
    assert (rig.iptables.cleanups, rig.ebpf.cleanups) == (1, 0)


def test_a_first_sync_that_fails_removes_nothing():
    rig = Rig(may_fall_back=False)
    rig.ebpf.failures.append(MapError("no"))
    with pytest.raises(MapError):
        rig.sync()
    assert rig.iptables.cleanups == 0


def test_programs_that_do_not_load_hand_over_at_once_and_completely():
    rig = Rig()
    rig.ebpf.failures.append(LoadFailed("clang: no"))
    with capture_logs() as logs:
        report = rig.sync()
    assert report.datapath == rig.switching.name == "iptables"
    assert rig.iptables.syncs == [(ALL, True)]
    assert (rig.iptables.cleanups, rig.ebpf.cleanups) == (0, 1)
    assert [entry["event"] for entry in logs] == ["running iptables: ebpf failed: clang: no"]


def test_one_failed_write_is_retried_and_a_third_in_a_row_hands_over():
    rig = Rig()
    rig.ebpf.failures += [MapError("no"), MapError("no"), MapError("no")]
    for _ in range(2):
        with pytest.raises(MapError):
            rig.sync()
    assert rig.sync().datapath == "iptables"


def test_a_success_forgets_earlier_failures():
    rig = Rig()
    for _ in range(3):
        rig.ebpf.failures += [MapError("no"), MapError("no")]
        for _ in range(2):
            with pytest.raises(MapError):
                rig.sync()
        assert rig.sync().datapath == "ebpf"


def test_when_the_fallback_fails_too_the_first_datapath_stays_in_place():
    rig = Rig()
    rig.ebpf.failures.append(LoadFailed("no"))
    rig.iptables.failures.append(DatapathError("lock"))
    with pytest.raises(DatapathError, match="lock"):
        rig.sync()
    assert rig.switching.name == "ebpf"
    assert rig.ebpf.cleanups == 0


def test_without_a_fallback_a_broken_datapath_stays_an_error():
    rig = Rig(may_fall_back=False)
    rig.ebpf.failures.append(LoadFailed("no"))
    with pytest.raises(LoadFailed):
        rig.sync()


def test_leftovers_that_cannot_be_removed_are_a_warning():
    rig = Rig()
    rig.iptables.cleanup_failure = DatapathError("iptables: not found")
    with capture_logs() as logs:
        rig.sync()
    assert [entry["log_level"] for entry in logs] == ["warning"]


def test_cleanup_removes_both():
    rig = Rig()
    rig.switching.cleanup()
    assert (rig.iptables.cleanups, rig.ebpf.cleanups) == (1, 1)
