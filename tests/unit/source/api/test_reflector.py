"""The rules of list and watch, one by one: what is asked next, and what is delivered."""

from random import Random

import pytest

from kbpf.errors import ApiFailure, ApiSilent
from kbpf.model.events import Event, Synced
from kbpf.source.api.reflector import LONG_ABSENCE_S, Reflector
from kbpf.source.api.request import LIST_SILENCE_S, Request
from kbpf.source.api.resource import SERVICES
from tests.api_answers import bookmark, error_line, line_of, page_of, tree
from tests.steady_clock import SteadyClock


class Rig:
    """A reflector, and what was asked and delivered so far."""

    def __init__(self, *, streams: bool = False) -> None:
        self.clock = SteadyClock()
        self.reflector = Reflector(SERVICES, self.clock, Random(7))
        self.delay_s = 0.0
        self.asked: dict[str, str] = {}
        if not streams:
            self.ask()
            self.fail(422, "does not stream")

    def ask(self) -> Request:
        self.delay_s, request = self.reflector.next()
        self.clock.advance(self.delay_s)
        self.asked = request.query
        return request

    def fail(self, status: int | None = None, words: str = "broke", **more: float) -> None:
        self.reflector.failed(ApiFailure(words, status=status, **more))

    def page(self, *trees: object, **more: str) -> list[str]:
        self.ask()
        return told(self.reflector.take_page(page_of(*trees, **more)))  # type: ignore[arg-type]

    def lines(self, *lines: bytes) -> list[str]:
        """The lines of one watch, up to its orderly end or its failure."""
        self.ask()
        self.clock.advance(60)
        events: list[Event] = []
        try:
            for line in lines:
                events += self.reflector.take_line(line)
        except ApiFailure as failure:
            self.reflector.failed(failure)
        else:
            self.reflector.ended()
        return told(events)

    def words(self) -> list[str]:
        return [line.words for line in self.reflector.take_news()]


def told(events: list[Event]) -> list[str]:
    words = []
    for event in events:
        if isinstance(event, Synced):
            words.append(f"synced {event.kind.value}")
        else:
            words.append(("+" if getattr(event, "service", None) else "-") + event.name.name)
    return words


@pytest.fixture
def rig() -> Rig:
    return Rig()


# -- lists -------------------------------------------------------------------------------------------------------------


def test_the_first_question_is_a_streaming_list_with_the_selectors_of_kube_proxy():
    rig = Rig(streams=True)
    request = rig.ask()
    assert rig.delay_s == 0
    assert request.is_stream
    assert rig.asked == rig.asked | {
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "fieldSelector": "spec.clusterIP!=None",
        "labelSelector": "!service.kubernetes.io/service-proxy-name",
    }
    assert "resourceVersion" not in rig.asked


def test_a_streaming_list_is_complete_with_its_bookmark_and_then_goes_on_as_a_watch():
    rig = Rig(streams=True)
    rig.ask()
    take = rig.reflector.take_line
    assert rig.reflector.longer_silence_s is None
    assert told(take(line_of("ADDED", tree("web", "7")))) == ["+web"]
    assert told(take(bookmark("900", ends_list=True))) == ["synced Service"]
    assert rig.reflector.longer_silence_s is not None
    assert rig.reflector.longer_silence_s > LIST_SILENCE_S
    assert told(take(line_of("DELETED", tree("web", "901")))) == ["-web"]
    rig.reflector.ended()
    rig.ask()
    assert rig.asked["resourceVersion"] == "901"


@pytest.mark.parametrize("status", [400, 404, 405, 415, 422])
def test_a_server_that_refuses_to_stream_lists_is_asked_for_pages_at_once_and_without_a_word(status):
    rig = Rig(streams=True)
    rig.ask()
    rig.fail(status)
    request = rig.ask()
    assert rig.delay_s == 0
    assert not request.is_stream
    assert rig.asked["limit"] == "500"
    assert rig.words() == []


@pytest.mark.parametrize("status", [401, 403, 429, 503, None])
def test_what_says_nothing_about_streaming_does_not_end_it(status):
    rig = Rig(streams=True)
    for _ in range(5):
        rig.ask()
        rig.fail(status)
    assert rig.ask().is_stream


def test_a_streaming_list_that_falls_silent_half_way_is_begun_anew_in_pages():
    rig = Rig(streams=True)
    rig.ask()
    rig.reflector.take_line(line_of("ADDED", tree("web")))
    rig.reflector.failed(ApiSilent("silent"))
    assert rig.page(tree("web"), tree("api")) == ["+api", "synced Service"]


def test_a_server_that_takes_a_streaming_list_for_a_plain_watch_is_found_out_by_its_first_bookmark():
    rig = Rig(streams=True)
    rig.ask()
    rig.reflector.take_line(line_of("ADDED", tree("web")))
    with pytest.raises(ApiFailure, match="streaming") as failure:
        rig.reflector.take_line(bookmark("50"))
    rig.reflector.failed(failure.value)
    assert not rig.ask().is_stream


def test_a_streaming_list_that_fails_on_the_server_again_and_again_gives_way_to_pages():
    rig = Rig(streams=True)
    for _ in range(3):
        assert rig.ask().is_stream
        rig.fail(500)
    assert not rig.ask().is_stream


def test_pages_follow_one_another_and_only_the_last_one_completes_the_list(rig):
    assert rig.page(tree("a"), version="100", continue_="token") == ["+a"]
    assert rig.page(tree("b"), version="100") == ["+b", "synced Service"]
    assert rig.asked["continue"] == "token"
    rig.ask()
    assert rig.asked["resourceVersion"] == "100"


def test_a_list_cut_off_between_two_pages_begins_from_the_front(rig):
    rig.page(tree("a"), continue_="token")
    rig.ask()
    rig.fail()
    assert rig.page(tree("a"), tree("b")) == ["+b", "synced Service"]
    assert "continue" not in rig.asked


def test_pages_that_expire_while_they_are_read_are_asked_for_as_one(rig):
    rig.page(tree("a"), continue_="token")
    rig.ask()
    rig.fail(410)
    rig.page(tree("a"))
    assert "limit" not in rig.asked
    rig.lines(error_line(410))
    rig.ask()
    assert rig.asked["limit"] == "500"


def test_nothing_is_synced_before_the_first_list_is_complete(rig):
    for _ in range(3):
        rig.ask()
        rig.fail()
    assert rig.page(tree("a"), continue_="token") == ["+a"]


def test_a_page_that_is_no_list_is_an_answer_of_something_else(rig):
    rig.ask()
    for body in (b"<html>", b"[]", b"{}", b"", b'{"metadata":{}}', b"\xff"):
        with pytest.raises(ApiFailure):
            rig.reflector.take_page(body)


# -- versions ----------------------------------------------------------------------------------------------------------


def test_the_watch_begins_at_the_version_of_the_list_not_of_its_items(rig):
    rig.page(tree("b", "300"), tree("a", "120"), version="500")
    rig.lines(line_of("DELETED", tree("a", "510")))
    assert rig.asked["resourceVersion"] == "500"
    rig.lines()
    assert rig.asked["resourceVersion"] == "510"


def test_a_bookmark_moves_the_version_and_changes_nothing_else(rig):
    rig.page(tree("a"), version="100")
    assert rig.lines(bookmark("4000")) == []
    rig.ask()
    assert rig.asked["resourceVersion"] == "4000"


def test_error_events_never_reach_the_version(rig):
    rig.page(tree("a"), version="100")
    for code in (500, 504):
        assert rig.lines(error_line(code)) == []
        rig.page(version="100")  # the check
        rig.ask()
        assert rig.asked["resourceVersion"] == "100"
        rig.fail()
        rig.page(version="100")


def test_an_event_without_a_version_keeps_the_last_one(rig):
    rig.page(version="100")
    nameless = {"metadata": {"name": "a"}}
    rig.lines(line_of("ADDED", nameless), b'{"type":"BOOKMARK","object":{"metadata":{}}}')
    rig.ask()
    assert rig.asked["resourceVersion"] == "100"


# -- listing anew ------------------------------------------------------------------------------------------------------


def test_after_410_the_list_brings_what_changed_and_what_was_deleted_and_nothing_else(rig):
    rig.page(tree("gone"), tree("same"), tree("changed"))
    assert rig.lines(error_line(410, "Expired")) == []
    changed = tree("changed", spec={"clusterIP": "10.96.0.99"})
    assert rig.page(tree("same"), changed, tree("new"), version="900") == ["+changed", "+new", "-gone"]
    assert "resourceVersion" not in rig.asked
    assert rig.words() == []


def test_410_as_the_status_of_the_watch_lists_anew_as_well(rig):
    rig.page(tree("a"))
    rig.ask()
    rig.fail(410)
    rig.ask()
    assert rig.delay_s > 0
    assert "watch" not in rig.asked


def test_three_refusals_in_a_row_list_anew(rig):
    rig.page(tree("a"))
    for _ in range(3):
        rig.ask()
        rig.fail(500)
    assert rig.page(tree("b"), version="2") == ["+b", "-a"]


def test_a_server_that_is_busy_or_starting_is_asked_again_from_the_same_version(rig):
    rig.page(tree("a"), version="100")
    for status in (429, 503, 403, 401) * 3:
        rig.ask()
        rig.fail(status)
        rig.clock.advance(1)
    rig.page(version="100")
    rig.ask()
    assert rig.asked["resourceVersion"] == "100"


def test_a_short_absence_is_followed_by_a_look_at_the_server_and_the_same_watch(rig):
    rig.page(tree("a"), version="100")
    rig.ask()
    rig.fail()
    assert rig.page(tree("other"), version="105") == []
    assert rig.asked["limit"] == "1"
    rig.ask()
    assert rig.asked["resourceVersion"] == "100"


def test_versions_that_start_anew_list_anew(rig):
    rig.page(tree("a"), tree("b"), version="100")
    rig.ask()
    rig.fail()
    assert rig.page(version="40") == []
    assert rig.page(tree("b"), version="41") == ["-a"]
    rig.ask()
    assert rig.asked["resourceVersion"] == "41"


def test_a_long_absence_lists_anew(rig):
    rig.page(tree("a"))
    rig.ask()
    rig.clock.advance(LONG_ABSENCE_S + 1)
    rig.fail()
    assert rig.page() == ["-a"]


def test_a_watch_that_the_server_ended_in_time_goes_on_at_once(rig):
    rig.page(tree("a"))
    rig.lines()
    request = rig.ask()
    assert rig.delay_s == 0
    assert request.query["resourceVersion"] == "100"


def test_a_watch_that_ends_at_once_every_time_is_not_asked_for_in_a_tight_loop(rig):
    rig.page(tree("a"))
    delays = []
    for _ in range(6):
        rig.ask()
        delays.append(rig.delay_s)
        rig.reflector.ended()
        rig.page()  # the check
        rig.reflector.failed(ApiFailure("x"))
    assert delays[0] == 0
    assert all(delay > 0.1 for delay in delays[1:])


def test_nonsense_in_a_watch_costs_the_connection_only(rig):
    rig.page(tree("a"), version="100")
    assert rig.lines(line_of("ADDED", tree("b", "101")), b"\x00garbage") == ["+b"]
    rig.page(version="101")
    assert rig.lines(line_of("ADDED", tree("c", "102"))) == ["+c"]
    assert rig.asked["resourceVersion"] == "101"


# -- objects -----------------------------------------------------------------------------------------------------------


def test_what_is_said_twice_is_delivered_once(rig):
    rig.page(tree("a", "5"))
    assert rig.lines(line_of("ADDED", tree("a", "5")), line_of("DELETED", tree("x", "6"))) == []


def test_an_object_that_cannot_be_read_harms_no_other_and_keeps_its_last_good_state(rig):
    rig.page(tree("bad"), tree("fine"))
    bad = tree("bad", "101", spec={"ports": "none"})
    assert rig.lines(line_of("MODIFIED", bad), line_of("ADDED", tree("next", "102"))) == ["+next"]
    assert rig.words() == ["Service shop/bad: spec.ports: 'none': expected array, got str, not applied"]
    rig.lines(error_line(410))
    assert rig.page(bad, tree("fine"), tree("next", "102")) == []
    assert rig.words() == []
    assert rig.lines(line_of("DELETED", bad)) == ["-bad"]


def test_an_object_that_cannot_be_read_is_told_again_after_it_was_mended(rig):
    bad = tree("bad", spec=7)
    rig.page(bad)
    assert len(rig.words()) == 1
    rig.lines(line_of("MODIFIED", tree("bad", "101")), line_of("MODIFIED", bad))
    assert len(rig.words()) == 1


@pytest.mark.parametrize("thing", ["text", 5, None, [], {}, {"metadata": None}, {"metadata": {"name": ""}}])
def test_an_object_without_a_name_is_told_and_skipped(rig, thing):
    assert rig.page(thing, tree("fine")) == ["+fine", "synced Service"]
    assert len(rig.words()) == 1


# -- waiting and telling -----------------------------------------------------------------------------------------------


def test_waiting_grows_stays_bounded_and_is_forgotten_after_an_answer(rig):
    delays = []
    for _ in range(12):
        rig.ask()
        delays.append(rig.delay_s)
        rig.fail()
    assert delays[0] == 0
    assert delays[2] < delays[5] < delays[8]
    assert max(delays) <= 30
    rig.page(tree("a"))
    rig.ask()
    assert rig.delay_s == 0


def test_the_server_is_never_asked_sooner_than_it_wants(rig):
    rig.ask()
    rig.fail(429, retry_after_s=17)
    rig.ask()
    assert 17 <= rig.delay_s <= 17 * 1.25


def test_an_outage_is_told_once_and_so_is_its_end(rig):
    for _ in range(4):
        rig.ask()
        rig.fail(words="https://10.0.0.1:6443: Connection refused")
    assert rig.words() == ["services: https://10.0.0.1:6443: Connection refused; asking again"]
    rig.ask()
    rig.fail(words="https://10.0.0.1:6443: 403: forbidden")
    assert rig.words() == ["services: https://10.0.0.1:6443: 403: forbidden; asking again"]
    rig.page()
    assert rig.words() == ["services: the API server answers again"]


def test_an_outage_that_lasts_is_told_again_every_few_minutes(rig):
    for _ in range(100):
        rig.ask()
        rig.fail(words="away")
    assert 5 < len(rig.words()) < 12


def test_a_watch_that_broke_and_works_again_at_once_is_no_news(rig):
    rig.page(tree("a"))
    rig.ask()
    rig.fail()
    rig.page(version="100")
    rig.lines(bookmark("101"))
    assert rig.words() == []
