"""The verdict on an overlay: everything that went wrong is named, and shown in the table."""

from dataclasses import replace

import pytest

from tests.e2e.daemonset import Readiness
from tests.e2e.daemonset_report import COLUMNS, document, table
from tests.e2e.kustomization import KUBERNETES
from tests.e2e.report import KUBERNETES as KUBERNETES_VERSION
from tests.e2e.suite import Outcome
from tests.e2e.trial import OVERLAYS, Trial
from tests.e2e.workload import Losses

READY = Readiness(ready=3, wanted=3, restarts=0)
NOTHING_LOST = Losses(tried=9000, failed=0, held=180, lost=0)
GOOD = Trial(OVERLAYS["base"], READY, (Outcome("DNS works", 3.0),), READY, NOTHING_LOST, NOTHING_LOST)


def test_every_overlay_is_tried_and_cleaned_by_the_one_for_that() -> None:
    folders = {f"overlays/{path.name}" for path in (KUBERNETES / "overlays").iterdir()}
    assert {overlay.path for overlay in OVERLAYS.values()} == {"base", *folders} - {"overlays/cleanup"}


def test_a_good_trial_has_no_problems() -> None:
    assert list(GOOD.problems()) == []


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (replace(GOOD, started=Readiness(2, 3, 0)), "after apply"),
        (replace(GOOD, started=Readiness(0, 0, 0)), "after apply"),
        (replace(GOOD, rolled_out=Readiness(3, 3, 1)), "after the roll-out"),
        (replace(GOOD, conformance=(Outcome("DNS works", 3.0, "timed out"),)), "DNS works: timed out"),
        (replace(GOOD, roll_out=Losses(9000, 1, 180, 0, ("ECONNREFUSED",))), "lost 1: ECONNREFUSED"),
        (replace(GOOD, deletion=Losses(9000, 0, 180, 2)), "held 180, lost 2"),
        (replace(GOOD, left=("node1: pin kbpf",)), "node1: pin kbpf"),
    ],
)
def test_a_problem_is_named_with_its_overlay(trial: Trial, words: str) -> None:
    (problem,) = trial.problems()
    assert problem.startswith("base: ")
    assert words in problem


def test_the_table_has_a_row_for_each_overlay() -> None:
    head, line, base, canary = table([GOOD, replace(GOOD, overlay=OVERLAYS["canary"], conformance=())])
    assert {row.count("|") for row in (head, line, base, canary)} == {len(COLUMNS) + 1}
    assert base == "| base | ebpf | 3 of 3 | 1 of 1 passed | 9000/0 | 180/0 | 9000/0 | 180/0 | nothing |"
    assert canary.startswith("| canary | ebpf | 3 of 3 |  | 9000/0 |")


def test_the_page_says_on_what_it_was_made() -> None:
    page = document(table([GOOD]))
    assert page.startswith("# The DaemonSet on real kubelets\n")
    assert f"Kubernetes {KUBERNETES_VERSION}, three nodes, Linux " in page
    assert page.endswith(" nothing |\n")
