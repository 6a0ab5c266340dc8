from pathlib import Path

from vagrant.vm.outcome import Outcome, read

REPORT = """
<testsuites><testsuite name="pytest">
<testcase classname="tests.kernel.test_a" name="test_good[x]"><properties>
<property name="datapath" value="ebpf"/></properties></testcase>
<testcase classname="tests.kernel.test_a" name="test_bad"><properties>
<property name="datapath" value="iptables"/></properties>
<failure message="assert 1 == 2&#10;more">…</failure></testcase>
<testcase classname="tests.kernel.test_a" name="test_broken"><error message="failed on teardown"/></testcase>
<testcase classname="tests.kernel.test_a" name="test_absent"><properties>
<property name="datapath" value="ebpf"/></properties><skipped message="no bond devices"/></testcase>
</testsuite></testsuites>
"""


def test_a_report_of_pytest_is_read(tmp_path: Path):
    (tmp_path / "tests.xml").write_text(REPORT)
    assert read(tmp_path) == (
        Outcome("tests.kernel.test_a::test_good[x]", "ebpf", "passed"),
        Outcome("tests.kernel.test_a::test_bad", "iptables", "failed", "assert 1 == 2"),
        Outcome("tests.kernel.test_a::test_broken", "none", "failed", "failed on teardown"),
        Outcome("tests.kernel.test_a::test_absent", "ebpf", "skipped", "no bond devices"),
    )


def test_a_run_without_pytest_has_no_outcomes(tmp_path: Path):
    assert read(tmp_path) == ()
