"""The change tracker: what differs from the last good sync."""

import pytest

from kbpf.tracking.changes import ChangeTracker

Tracker = ChangeTracker[str, int]


def shown(tracker: Tracker) -> dict[str, int | None]:
    return tracker.checkout().shown


def synced_with(**values: int) -> Tracker:
    tracker = Tracker()
    for key, value in values.items():
        tracker.update(key, value)
    tracker.commit(tracker.checkout())
    return tracker


def test_a_new_key_is_a_change():
    tracker = Tracker()
    assert tracker.update("a", 1)
    assert (shown(tracker), tracker.current) == ({"a": 1}, {"a": 1})


def test_the_same_value_again_is_none():
    tracker = synced_with(a=1)
    assert not tracker.update("a", 1)
    assert shown(tracker) == {}


def test_removing_what_was_never_there_is_none():
    tracker = Tracker()
    assert not tracker.update("a", None)
    assert shown(tracker) == {}


def test_many_updates_collapse_into_the_last():
    tracker = synced_with(a=1)
    for value in (2, 3, None, 4):
        assert tracker.update("a", value)
    checkout = tracker.checkout()
    assert (checkout.shown, checkout.synced) == ({"a": 4}, {"a": 1})


@pytest.mark.parametrize("between", [[2], [2, 3], [None], [2, None, 3]])
def test_a_value_that_returns_erases_its_change(between: list[int | None]):
    tracker = synced_with(a=1)
    for value in between:
        tracker.update("a", value)
    assert not tracker.update("a", 1)
    assert shown(tracker) == {}


def test_a_key_that_comes_and_goes_was_never_there():
    tracker = Tracker()
    tracker.update("a", 1)
    assert not tracker.update("a", None)
    assert (shown(tracker), tracker.current) == ({}, {})


def test_a_removed_key_is_shown_as_gone():
    tracker = synced_with(a=1)
    assert tracker.update("a", None)
    assert shown(tracker) == {"a": None}


def test_a_checkout_consumes_nothing():
    tracker = Tracker()
    tracker.update("a", 1)
    assert shown(tracker) == shown(tracker) == {"a": 1}


def test_a_commit_consumes_what_the_checkout_showed():
    tracker = Tracker()
    tracker.update("a", 1)
    tracker.commit(tracker.checkout())
    assert shown(tracker) == {}


def test_a_change_after_the_checkout_is_kept():
    tracker = synced_with(a=1)
    tracker.update("a", 2)
    checkout = tracker.checkout()
    tracker.update("a", 3)
    tracker.update("b", 1)
    tracker.commit(checkout)
    after = tracker.checkout()
    assert (after.shown, after.synced) == ({"a": 3, "b": 1}, {"a": 2, "b": None})


def test_a_return_to_the_old_value_after_the_checkout_is_a_change():
    tracker = synced_with(a=1)
    tracker.update("a", 2)
    checkout = tracker.checkout()
    assert not tracker.update("a", 1)
    tracker.commit(checkout)
    after = tracker.checkout()
    assert (after.shown, after.synced) == ({"a": 1}, {"a": 2})


def test_a_removal_after_the_checkout_is_a_change():
    tracker = Tracker()
    tracker.update("a", 1)
    checkout = tracker.checkout()
    tracker.update("a", None)
    tracker.commit(checkout)
    assert shown(tracker) == {"a": None}


def test_a_value_that_changed_and_returned_to_the_shown_one_is_done():
    tracker = Tracker()
    tracker.update("a", 1)
    checkout = tracker.checkout()
    tracker.update("a", 2)
    tracker.update("a", 1)
    tracker.commit(checkout)
    assert shown(tracker) == {}


def test_a_checkout_does_not_follow_later_updates():
    tracker = Tracker()
    tracker.update("a", 1)
    checkout = tracker.checkout()
    tracker.update("a", 2)
    tracker.update("b", 2)
    assert checkout.shown == {"a": 1}
