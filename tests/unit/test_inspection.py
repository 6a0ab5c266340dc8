"""When to look whether what was written is still there; time is virtual."""

import pytest

from kbpf.clock import FakeClock
from kbpf.inspection import InspectionSchedule
from tests.steady_clock import SteadyClock


@pytest.fixture
def clock() -> FakeClock:
    return SteadyClock()


@pytest.fixture
def inspections(clock: FakeClock) -> InspectionSchedule:
    return InspectionSchedule(30, clock)


def test_a_look_is_due_each_period_whether_or_not_it_found_something(inspections, clock):
    assert inspections.seconds_until_due() == 30
    clock.advance(30)
    assert inspections.is_due()
    inspections.looked()
    assert inspections.seconds_until_due() == 30


def test_a_cheap_full_sync_is_made_at_each_look(inspections, clock):
    for _ in range(3):
        inspections.synced_fully(0.2)
        assert not inspections.may_be_full
        clock.advance(30)
        assert inspections.is_due()
        assert inspections.may_be_full


def test_a_dear_full_sync_takes_no_more_than_a_hundredth_of_the_time(inspections, clock):
    inspections.synced_fully(2)
    for _ in range(6):
        clock.advance(30)
        assert inspections.is_due()
        assert not inspections.may_be_full
        inspections.looked()
    clock.advance(20)
    assert inspections.may_be_full


def test_a_full_sync_for_another_reason_is_a_look_as_well(inspections, clock):
    clock.advance(29)
    inspections.synced_fully(0.1)
    assert inspections.seconds_until_due() == 30


def test_a_look_in_steps_counts_as_long_as_its_steps_took(inspections, clock):
    def steps():
        for _ in range(3):
            clock.advance(0.2)
            yield ()

    inspections.begin(steps())
    while inspections.has_steps:
        assert inspections.step() == ()
        clock.advance(7)  # somebody's changes
    clock.advance(30)
    assert not inspections.may_begin
    clock.advance(30)
    assert inspections.may_begin


def test_what_a_full_sync_costs_is_no_price_of_a_look_in_steps(inspections, clock):
    inspections.synced_fully(60)
    assert not inspections.may_begin
    clock.advance(30)
    assert inspections.may_begin


def test_a_full_sync_in_the_middle_of_a_look_saw_the_rest(inspections):
    inspections.begin(iter([("entries of slots",), ()]))
    assert inspections.step() == ("entries of slots",)
    inspections.synced_fully(0.1)
    assert not inspections.has_steps


def test_while_a_look_goes_on_no_other_begins(inspections, clock):
    clock.advance(3600)
    inspections.begin(iter([()]))
    assert not inspections.may_begin
