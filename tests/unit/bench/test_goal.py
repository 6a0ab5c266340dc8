"""What a bench makes of its figures: a noisy machine gets no verdict that its noise could have made."""

import pytest

from tests.bench.goal import MISSED_STATUS, NOISY_STATUS, Goal, Verdict, exit_status

QUIET, NOISY = 1.004, 0.93


@pytest.mark.parametrize(
    ("measured", "control", "verdict"),
    [
        (1.02, QUIET, Verdict.MET),
        (1.021, QUIET, Verdict.MISSED),
        (1.02, NOISY, Verdict.NOISY),
        (1.05, NOISY, Verdict.NOISY),
        (0.9, NOISY, Verdict.MET),
        (1.2, NOISY, Verdict.MISSED),
        (1.2, 1.4, Verdict.NOISY),
    ],
)
def test_a_verdict_holds_against_the_noise_that_the_control_shows(measured: float, control: float, verdict: Verdict):
    assert Goal("connect", measured, 1.02, control).verdict is verdict


def test_a_goal_that_is_surely_missed_counts_more_than_one_that_cannot_be_judged():
    assert exit_status({Verdict.MET}) == 0
    assert exit_status({Verdict.MET, Verdict.NOISY}) == NOISY_STATUS
    assert exit_status(set(Verdict)) == MISSED_STATUS
