"""Events: in kube-proxy's words where it has them, each once, and never a flood."""

import pytest

from kbpf.clock import FakeClock
from kbpf.model.problem import Problem
from kbpf.observe import notices
from kbpf.observe.events import BURST, MAX_SUBJECTS, PER_S, REPEAT_S, LimitedEvents
from kbpf.observe.notices import MAX_NOTE, Notice, Subject
from tests.builders import service_name


class Recorded:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.notices: list[Notice] = []
        self.repeats: list[int] = []
        self.limited = LimitedEvents(self, self.clock)

    def emit(self, notice: Notice, repeats: int = 0) -> None:
        self.notices.append(notice)
        self.repeats.append(repeats)


@pytest.fixture
def events() -> Recorded:
    return Recorded()


def numbered(number: int, name: str = "web") -> Notice:
    return Notice(Subject("Service", name, "shop"), "InvalidField", "Resolve", f"number {number}")


def test_the_same_words_are_said_once_and_later_with_how_often_they_were_held_back(events: Recorded):
    for _ in range(3):
        events.limited.emit(numbered(1))
    assert events.repeats == [0]
    events.clock.advance(REPEAT_S)
    events.limited.emit(numbered(1))
    assert events.repeats == [0, 2]


def test_one_object_cannot_flood_and_another_one_is_heard_all_the_same(events: Recorded):
    for number in range(100):
        events.limited.emit(numbered(number))
    assert len(events.notices) == BURST
    events.limited.emit(numbered(0, "api"))
    assert len(events.notices) == BURST + 1
    events.clock.advance(PER_S)
    events.limited.emit(numbered(100))
    assert events.notices[-1] == numbered(100)


def test_memory_is_bounded_and_forgets_who_has_been_silent_longest(events: Recorded):
    for number in range(MAX_SUBJECTS + 1):
        events.limited.emit(numbered(0, f"web{number}"))
    said = len(events.notices)
    events.limited.emit(numbered(0, "web0"))
    events.limited.emit(numbered(0, f"web{MAX_SUBJECTS}"))
    assert events.notices[said:] == [numbered(0, "web0")]


def test_a_start_is_kube_proxy_s_event():
    notice = notices.starting("n1")
    assert (str(notice.subject), notice.reason, notice.action) == ("Node n1", "Starting", "StartKubeProxy")
    assert not notice.is_warning


def test_a_health_port_that_is_taken_is_said_of_the_service_as_kube_proxy_does():
    notice = notices.health_port_taken("n1", service_name("edge"), 32100, "0.0.0.0:32100: Address already in use")
    assert (str(notice.subject), notice.reason, notice.action) == (
        "Service shop/edge",
        "FailedToStartServiceHealthcheck",
        "Listen",
    )
    assert notice.note == (
        'node n1 failed to start healthcheck "shop/edge" on port 32100: 0.0.0.0:32100: Address already in use'
    )


@pytest.mark.parametrize(
    ("server", "reason"),
    [("health", "FailedToStartProxierHealthcheck"), ("metrics", "FailedToStartMetricServer")],
)
def test_a_server_that_cannot_listen_is_kube_proxy_s_event(server: str, reason: str):
    assert notices.address_taken("n1", server, "taken").reason == reason


def test_a_problem_is_said_of_its_object_and_one_without_a_name_of_none():
    found = Problem("EndpointSlice shop/web-1", "ports[0].port", "0", "not a port number, port skipped")
    notice = notices.problem("n1", found)
    assert notice is not None
    assert str(notice.subject) == "EndpointSlice shop/web-1"
    assert notice.note == "node n1: ports[0].port: 0: not a port number, port skipped"
    assert notices.problem("n1", Problem("Service", "metadata.name", "'%'", "object ignored")) is None


def test_a_note_is_no_longer_than_the_api_takes():
    assert len(notices.fell_back("n1", "x" * 5000).note) == MAX_NOTE
