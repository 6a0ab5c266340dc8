"""The runner decides when to sync; time is virtual, nothing sleeps."""

import pytest

from kbpf.runner import BoundedFrequencyRunner, RunnerIntervals
from tests.steady_clock import SteadyClock


def make_runner(minimum: float = 1, retry: float = 30, maximum: float = 3600, burst: int = 1):
    clock = SteadyClock()
    return BoundedFrequencyRunner(RunnerIntervals(minimum, retry, maximum, burst), clock), clock


def run(runner: BoundedFrequencyRunner, succeeded: bool = True) -> None:
    assert runner.is_due()
    runner.started()
    runner.finished(succeeded)


def test_the_first_request_is_served_at_once():
    runner, _ = make_runner()
    assert not runner.is_due()
    runner.request()
    assert runner.seconds_until_due() == 0


def test_requests_before_a_run_collapse_into_it():
    runner, clock = make_runner()
    runner.request()
    runner.request()
    run(runner)
    clock.advance(10)
    assert not runner.is_due()


def test_the_minimum_interval_counts_from_the_end_of_a_slow_run():
    runner, clock = make_runner(minimum=5)
    runner.request()
    runner.started()
    clock.advance(7)
    runner.finished(True)
    runner.request()
    assert runner.seconds_until_due() == pytest.approx(5)
    clock.advance(5)
    assert runner.is_due()


def test_a_request_made_during_a_run_causes_one_more():
    runner, clock = make_runner()
    runner.request()
    runner.started()
    runner.request()
    runner.finished(True)
    assert not runner.is_due()
    clock.advance(1)
    run(runner)
    clock.advance(1)
    assert not runner.is_due()


def test_a_lone_change_after_a_rest_never_waits():
    runner, clock = make_runner(minimum=1)
    runner.request()
    run(runner)
    clock.advance(100)
    runner.request()
    assert runner.is_due()


def test_without_requests_a_run_comes_after_the_maximum_interval():
    runner, clock = make_runner(maximum=3600)
    assert runner.seconds_until_due() == 3600
    clock.advance(3600)
    run(runner)
    assert runner.seconds_until_due() == 3600


def test_a_failed_run_is_retried_and_success_cancels_the_retry():
    runner, clock = make_runner(retry=30)
    runner.request()
    run(runner, succeeded=False)
    assert runner.seconds_until_due() == 30
    clock.advance(30)
    run(runner)
    assert runner.seconds_until_due() == 3600


def test_a_retry_is_never_later_than_the_maximum_interval():
    runner, _ = make_runner(retry=30, maximum=10)
    runner.request()
    run(runner, succeeded=False)
    assert runner.seconds_until_due() == 10


def test_a_request_during_the_wait_for_a_retry_is_served_after_the_minimum_interval():
    runner, clock = make_runner(minimum=1, retry=30)
    runner.request()
    run(runner, succeeded=False)
    clock.advance(1)
    runner.request()
    assert runner.is_due()


def test_a_burst_lets_runs_follow_each_other_at_once():
    runner, clock = make_runner(minimum=1, burst=2)
    for _ in range(2):
        runner.request()
        run(runner)
    runner.request()
    assert runner.seconds_until_due() == pytest.approx(1)
    clock.advance(1)
    assert runner.is_due()


def test_no_minimum_interval_means_no_waiting():
    runner, _ = make_runner(minimum=0)
    for _ in range(5):
        runner.request()
        run(runner)


def test_a_run_that_came_at_a_bad_moment_is_retried_soon_and_each_time_a_little_later():
    runner, clock = make_runner(retry=30)
    runner.request()
    waits = []
    for _ in range(6):
        run(runner, succeeded=False)
        runner.retry_soon()
        waits.append(runner.seconds_until_due())
        clock.advance(waits[-1])
    assert waits == [2, 4, 8, 16, 30, 30]


def test_a_success_makes_the_next_bad_moment_the_first_one_again():
    runner, clock = make_runner(retry=30)
    for succeeded in (False, False, True, False):
        runner.request()
        run(runner, succeeded)
        if not succeeded:
            runner.retry_soon()
        clock.advance(1)
    assert runner.seconds_until_due() == 1


def test_a_soon_retry_is_never_later_than_an_ordinary_one():
    runner, _ = make_runner(retry=1)
    runner.request()
    run(runner, succeeded=False)
    runner.retry_soon()
    assert runner.seconds_until_due() == 1


@pytest.mark.parametrize(
    "intervals",
    [(2, 30, 1, 1), (-1, 30, 60, 1), (1, 0, 60, 1), (1, 30, 60, 0)],
    ids=["min>max", "min<0", "retry", "burst"],
)
def test_impossible_intervals_are_refused(intervals: tuple[float, float, float, int]):
    with pytest.raises(ValueError, match="interval"):
        RunnerIntervals(*intervals)
