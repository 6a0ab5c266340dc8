"""The thread of one resource: it asks, delivers, survives everything and stops when told."""

from random import Random

from kbpf.clock import FakeClock
from kbpf.errors import ApiFailure
from kbpf.model.events import Event, Kind, ServiceChanged, Synced
from kbpf.source.api.follower import Follower
from kbpf.source.api.reflector import Reflector
from kbpf.source.api.request import LIST_SILENCE_S
from kbpf.source.api.resource import SERVICES
from tests.api_answers import bookmark, line_of, page_of, tree
from tests.logs import capture_logs
from tests.scripted_transport import ScriptedTransport, waiting_by


class Rig:
    def __init__(self, *script: object) -> None:
        self.clock = FakeClock()
        self.events: list[Event] = []
        self.transport = ScriptedTransport({"services": list(script)}, lambda resource: self.follower.stop())
        self.follower = Follower(
            Reflector(SERVICES, self.clock, Random(7)), self.transport, self.take, waiting_by(self.clock)
        )

    def take(self, event: Event) -> None:
        self.events.append(event)

    def run(self) -> list[dict[str, object]]:
        """To the end of the script. Returns what was logged."""
        with capture_logs() as logs:
            self.follower.run()
        assert self.transport.open_answers == 0
        return logs  # type: ignore[return-value]

    @property
    def names(self) -> list[str]:
        return [event.name.name for event in self.events if isinstance(event, ServiceChanged)]


def test_a_stream_is_delivered_line_by_line_and_asked_for_again():
    rig = Rig([line_of("ADDED", tree("a")), bookmark("9", ends_list=True), line_of("ADDED", tree("b", "10"))], [])
    rig.run()
    assert rig.names == ["a", "b"]
    assert rig.events[1] == Synced(Kind.SERVICE)
    assert rig.transport.asked["services"][1].query["resourceVersion"] == "10"


def test_a_list_that_has_become_a_watch_may_be_silent_for_longer():
    rig = Rig([line_of("ADDED", tree("a")), bookmark("9", ends_list=True), bookmark("10")])
    rig.run()
    (silence,) = rig.transport.answers[0].silences
    assert silence > LIST_SILENCE_S


def test_lists_come_in_pages_from_a_server_that_does_not_stream():
    rig = Rig(ApiFailure("no", status=422), page_of(tree("a"), continue_="x"), page_of(tree("b")))
    rig.run()
    assert rig.names == ["a", "b"]


def test_an_outage_is_one_line_and_what_comes_after_it_is_delivered():
    failures = [ApiFailure("https://10.0.0.1:6443: Connection refused")] * 8
    rig = Rig(*failures, [line_of("ADDED", tree("a")), bookmark("9", ends_list=True)])
    logs = rig.run()
    assert rig.names == ["a"]
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]


def test_a_connection_that_breaks_in_the_middle_keeps_what_came_before():
    broken = ApiFailure("the connection broke")
    rig = Rig(
        [line_of("ADDED", tree("a")), bookmark("9", ends_list=True), line_of("ADDED", tree("b", "10")), broken],
        page_of(version="10"),
        [line_of("ADDED", tree("c", "11"))],
    )
    logs = rig.run()
    assert rig.names == ["a", "b", "c"]
    assert logs == []


def test_a_defect_on_the_way_is_reported_and_followed_by_a_list():
    class Failing(Rig):
        has_failed = False

        def take(self, event: Event) -> None:
            if isinstance(event, ServiceChanged) and event.name.name == "b" and not self.has_failed:
                self.has_failed = True
                raise ZeroDivisionError
            super().take(event)

    first = [line_of("ADDED", tree("a")), line_of("ADDED", tree("b"))]
    rig = Failing(first, [line_of("ADDED", tree("c")), bookmark("9", ends_list=True)])
    logs = rig.run()
    assert "please report" in str(logs[0]["event"])
    assert "c" in rig.names
    assert "watch" in rig.transport.asked["services"][1].query


def test_after_stop_nothing_is_delivered():
    rig = Rig([line_of("ADDED", tree("a"))])
    rig.follower.stop()
    rig.run()
    assert rig.events == []
    assert rig.transport.asked["services"] == []
