"""Events on their way to the API server: nobody waits, refusals end, outages are waited out, repeats are counted."""

import json
import threading
from collections.abc import Iterable

import pytest

from kbpf.clock import FakeClock
from kbpf.errors import ApiFailure
from kbpf.event_writer import ATTEMPTS, MAX_REMEMBERED, ROOM, EventWriter
from kbpf.observe import notices
from kbpf.observe.notices import Notice, Subject
from tests.logs import capture_logs
from tests.mirror import eventually

AWAY = ApiFailure("https://api: Connection refused")
STARTING = notices.starting("n1")


class Server:
    """Takes what it is given, but for the answers that are written down for it."""

    def __init__(self, *answers: ApiFailure | None) -> None:
        self.answers = iter(answers)
        self.taken: list[tuple[str, str, dict[str, object]]] = []
        self.asked = 0

    def write(self, method: str, path: str, document: bytes) -> None:
        self.asked += 1
        if failure := next(self.answers, None):
            raise failure
        self.taken.append((method, path, json.loads(document)))


class Written:
    """What came of notices, and what the log heard."""

    def __init__(self, server: Server, emitted: Iterable[Notice]) -> None:
        self.clock = FakeClock()
        self.pauses: list[float] = []
        self.writer = EventWriter(server.write, "n1", self.clock, self._wait)
        for notice in emitted:
            self.writer.emit(notice)
        self.writer.end()
        with capture_logs() as logs:
            self.writer.run()
        self.lines = [str(entry["event"]) for entry in logs]

    def _wait(self, stopped: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        return stopped.is_set()


def test_each_is_created_in_order():
    server = Server()
    Written(server, [STARTING, notices.fell_back("n1", "no cgroup2")])
    assert [(method, document["reason"]) for method, _, document in server.taken] == [
        ("POST", "Starting"),
        ("POST", "EbpfUnavailable"),
    ]


def test_an_outage_is_one_line_waited_out_and_one_line_again():
    server = Server(*[AWAY] * 4)
    written = Written(server, [STARTING])
    assert len(server.taken) == 1
    assert len(written.pauses) == 4
    assert written.lines == [
        "events: https://api: Connection refused; asking again",
        "events: the API server answers again",
    ]


@pytest.mark.parametrize(("status", "attempts"), [(403, 1), (422, 1), (404, 1), (429, 2), (500, 2), (401, 2)])
def test_what_is_forbidden_is_not_tried_again_and_what_may_pass_is(status: int, attempts: int):
    server = Server(ApiFailure("no", status=status))
    Written(server, [STARTING])
    assert server.asked == attempts


def test_a_refusal_is_one_line_however_many_events_it_costs():
    forbidden = ApiFailure("https://api: 403: events is forbidden", status=403)
    written = Written(Server(forbidden, forbidden, forbidden), [STARTING] * 3)
    assert written.lines == ["events: https://api: 403: events is forbidden; given up"]


def test_an_api_server_that_stays_away_is_given_up_and_the_next_event_is_tried():
    server = Server(*[AWAY] * ATTEMPTS)
    written = Written(server, [STARTING, notices.fell_back("n1", "no cgroup2")])
    assert [document["reason"] for _, _, document in server.taken] == ["EbpfUnavailable"]
    assert written.lines[1] == "events: https://api: Connection refused; given up"


def test_what_is_said_again_is_counted_in_the_event_that_is_there():
    server = Server()
    writer = EventWriter(server.write, "n1", FakeClock())
    writer.emit(STARTING)
    writer.emit(STARTING, 5)
    writer.emit(STARTING)
    writer.end()
    writer.run()
    (created, path, _), *patches = server.taken
    assert created == "POST"
    assert {where for _, where, _ in patches} == {patches[0][1]}
    assert patches[0][1].startswith(f"{path}/n1.")
    assert [document["series"]["count"] for _, _, document in patches] == [7, 8]  # type: ignore[index]


def test_an_event_that_the_api_server_has_forgotten_is_made_anew():
    server = Server(None, ApiFailure("gone", status=404))
    Written(server, [STARTING, STARTING])
    assert [method for method, _, _ in server.taken] == ["POST", "POST"]


def test_emitting_never_waits_and_what_finds_no_room_is_dropped():
    server = Server()
    writer = EventWriter(server.write, "n1", FakeClock())
    for number in range(ROOM + 50):
        writer.emit(numbered(number))
    writer.start()
    writer.stop()
    eventually(lambda: not is_running())
    assert len(server.taken) == ROOM


def test_what_was_written_is_remembered_of_a_bounded_number():
    server = Server()
    writer = EventWriter(server.write, "n1", FakeClock())
    for number in [*range(MAX_REMEMBERED + 1), 0, MAX_REMEMBERED]:
        writer.emit(numbered(number))
        if number % 100 == 0 or number == MAX_REMEMBERED:
            writer.end()
            writer.run()
    assert [method for method, _, _ in server.taken[-2:]] == ["POST", "PATCH"]


def test_the_end_comes_soon_also_while_the_api_server_is_away():
    def write(method: str, path: str, document: bytes) -> None:
        raise AWAY

    writer = EventWriter(write, "n1", FakeClock())
    writer.emit(STARTING)
    writer.start()
    writer.stop()
    assert not is_running()


def is_running() -> bool:
    return any(thread.name == "events" for thread in threading.enumerate())


def numbered(number: int) -> Notice:
    return Notice(Subject("Service", f"web{number}", "shop"), "R", "A")
