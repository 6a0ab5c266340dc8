"""The times of changes: kept until the kernel holds them, counted once, and never those of an earlier process."""

from collections.abc import Mapping

import pytest

from kbpf.model.address import Family
from kbpf.model.objects import TRIGGER_TIME_ANNOTATION, EndpointSlice, ObjectMeta
from kbpf.tracking.trackers import Trackers
from kbpf.tracking.trigger_times import TriggerTime, trigger_time
from tests.builders import NODE_NAME, changed, endpoint_slice, gone, service_name

WEB = service_name("web")
STARTED_AT = 1000.0


def at(seconds: float, *addresses: str) -> EndpointSlice:
    return annotated(
        {TRIGGER_TIME_ANNOTATION: f"1970-01-01T00:{int(seconds) // 60:02}:{seconds % 60:09.6f}Z"}, *addresses
    )


def annotated(annotations: Mapping[str, str], *addresses: str) -> EndpointSlice:
    made = endpoint_slice("web", *addresses)
    meta = ObjectMeta(
        made.metadata.name, made.metadata.namespace, labels=made.metadata.labels, annotations=dict(annotations)
    )
    return EndpointSlice(meta, made.address_type, made.endpoints, made.ports)


@pytest.fixture
def trackers() -> Trackers:
    return Trackers(NODE_NAME, STARTED_AT)


def times(trackers: Trackers) -> list[float]:
    return [trigger.seconds for trigger in trackers.checkout().triggers.get(WEB, ())]


def test_changes_that_wait_for_one_sync_each_have_their_time(trackers: Trackers):
    trackers.update(changed(at(1001, "10.42.1.5")))
    trackers.update(changed(at(1002.5, "10.42.1.5", "10.42.1.6")))
    assert trackers.checkout().triggers[WEB] == (TriggerTime(Family.IPV4, 1001), TriggerTime(Family.IPV4, 1002.5))


def test_what_was_synced_is_forgotten_and_what_came_meanwhile_is_not(trackers: Trackers):
    trackers.update(changed(at(1001, "10.42.1.5")))
    changes = trackers.checkout()
    trackers.update(changed(at(1002, "10.42.1.6")))
    trackers.commit(changes)
    assert times(trackers) == [1002]


def test_a_failed_sync_forgets_nothing(trackers: Trackers):
    trackers.update(changed(at(1001, "10.42.1.5")))
    trackers.checkout()
    assert times(trackers) == [1001]


def test_a_new_time_alone_is_no_change(trackers: Trackers):
    trackers.update(changed(at(1001, "10.42.1.5")))
    trackers.commit(trackers.checkout())
    trackers.update(changed(at(1002, "10.42.1.5")))
    assert times(trackers) == []


def test_a_slice_that_is_gone_takes_the_times_of_its_service_along(trackers: Trackers):
    trackers.update(changed(at(1001, "10.42.1.5")))
    trackers.update(gone(at(1001, "10.42.1.5")))
    assert times(trackers) == []


def test_what_happened_before_the_start_does_not_count(trackers: Trackers):
    trackers.update(changed(at(999, "10.42.1.5")))
    assert times(trackers) == []


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-29T20:03:14", "1764446594"])
def test_what_is_no_time_is_none(text: str):
    assert trigger_time(annotated({TRIGGER_TIME_ANNOTATION: text})) is None


def test_nanoseconds_and_time_zones_are_read():
    assert trigger_time(annotated({TRIGGER_TIME_ANNOTATION: "1970-01-01T01:00:00.250000001+01:00"})) == 0.25
    assert trigger_time(endpoint_slice("web")) is None
