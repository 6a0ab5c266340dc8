"""What `make test-distributions` makes of a report: nothing that did not run may count as good."""

from datetime import UTC, datetime

from tests.distributions.outcome import Outcome, counted
from tests.distributions.table import page, table

REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="tests.unit.test_a" name="test_one" /><testcase classname="tests.unit.test_a" name="test_two" />
<testcase classname="tests.kernel.test_b" name="test_three"><skipped message="no nfacct" /></testcase>{more}
</testsuite></testsuites>"""
BROKEN = '<testcase classname="tests.kernel.test_b" name="test_four"><{how} message="no" /></testcase>'
VERSIONS = ("Python 3.13.5", "BCC 0.31.0", "iptables v1.8.11 (nf_tables)")


def test_passed_and_skipped_tests_are_good() -> None:
    outcome = counted("Debian 13", VERSIONS, REPORT.format(more=""), 0)
    assert (outcome.passed, outcome.failed, outcome.is_good) == (2, (), True)
    assert dict(outcome.skipped) == {"no nfacct": 1}


def test_failures_and_errors_are_named() -> None:
    for how in ("failure", "error"):
        outcome = counted("Debian 13", VERSIONS, REPORT.format(more=BROKEN.format(how=how)), 1)
        assert not outcome.is_good
        assert "- Debian 13: failed: tests.kernel.test_b.test_four" in table([outcome])


def test_a_status_without_a_failed_test_is_not_good() -> None:
    outcome = counted("Debian 13", VERSIONS, REPORT.format(more=""), 2)
    assert not outcome.is_good
    assert "- Debian 13: ended with status 2" in table([outcome])


def test_no_test_at_all_is_not_good() -> None:
    assert not counted("Debian 13", VERSIONS, "<testsuites />", 0).is_good


def test_a_distribution_that_could_not_be_made_is_not_good_and_says_why() -> None:
    outcome = Outcome("Ubuntu 24.04", problem="not tried: the archive does not answer")
    assert not outcome.is_good
    assert "| Ubuntu 24.04 | not tried: the archive does not answer | – | – | – |" in table([outcome])


def test_the_page_says_when_and_on_which_kernel() -> None:
    text = page([counted("Debian 13", VERSIONS, REPORT.format(more=""), 0)], datetime(2026, 11, 30, tzinfo=UTC))
    assert "2026-11-30" in text
    assert f"| Debian 13 | {', '.join(VERSIONS)} | 2 | 0 | 1 |" in text
