"""What to ask an API server next, given what came: the one place that knows the rules of list and watch. Pure.

    list ─► watch from the version of the list ─► watch from the version of the last event ─► …

`Follower` asks what `next` says and hands back what came. The rules:

- The version of a list, then that of each event and bookmark, is where the next watch begins. Versions are not
  understood, with one exception: numbers that fall say that the server's store was replaced.
- 410 Gone, three refusals in a row or a long absence: list anew. The inventory finds what changed and what was deleted
  meanwhile, so a list that brings nothing new delivers nothing.
- A shorter absence is followed by a look at the version that the server has now: one that runs on a restored store
  would accept ours and stay silent until it gets there.
- Lists come as streams, and in pages from a server that does not stream.
"""

from enum import Enum
from random import Random
from typing import NamedTuple

import msgspec

from kbpf.clock import Clock
from kbpf.errors import ApiFailure, ApiSilent
from kbpf.model.events import Event, Synced
from kbpf.source.api.backoff import delay_s
from kbpf.source.api.decode import (
    INITIAL_EVENTS_END,
    Page,
    decode_bookmark,
    decode_event,
    decode_page,
    refusal,
)
from kbpf.source.api.intake import Intake
from kbpf.source.api.news import Line, News
from kbpf.source.api.request import PAGE_SIZE, WATCH_MARGIN_S, Request, page, streaming_list, watch
from kbpf.source.api.resource import Resource

WATCH_TIMEOUT_S = (240, 300)
"""Every node chooses its own; the server ends a watch after it, and proves to be alive by that."""
SHORTEST_WATCH_S = 1.0
"""A watch that ends sooner, without a word, did not work."""
LONG_ABSENCE_S = 120.0
"""Longer than the pause between two bookmarks."""
MOST_REFUSALS = 3

GONE = 410
SAYS_NOTHING_OF_THE_QUESTION = frozenset((401, 403, 408, 429, 503))


class Phase(Enum):
    STREAMING_LIST = "streaming list"
    PAGES = "pages"
    CHECK = "check"
    WATCH = "watch"


class Attempt(NamedTuple):
    delay_s: float
    request: Request


class Reflector:
    """Owned by the thread of its resource."""

    def __init__(self, resource: Resource, clock: Clock, random: Random) -> None:
        self._resource = resource
        self._clock = clock
        self._random = random
        self._news = News(str(resource), clock)
        self._intake = Intake(resource, self._news)
        self._phase = Phase.STREAMING_LIST
        self._version = ""
        """Where the next watch begins; empty: list first."""
        self._continue = ""
        self._page_size = PAGE_SIZE
        self._may_stream_lists = True
        self._must_check = False
        self._is_synced = False
        self._failures = 0
        self._refusals = 0
        self._delay_s = 0.0
        self._timeout_s = 0
        self._was_heard = False
        self._started = self._last_heard = clock.monotonic()

    # -- what to do --------------------------------------------------------------------------------------------------

    def next(self) -> Attempt:
        """How long to wait, and what to ask for then."""
        delay, self._delay_s = self._delay_s, 0.0
        self._started = self._clock.monotonic() + delay
        self._was_heard = False
        self._timeout_s = self._random.randint(*WATCH_TIMEOUT_S)
        self._phase = self._next_phase()
        if self._phase is Phase.CHECK:
            return Attempt(delay, page(self._resource, limit=1))
        if self._phase is Phase.WATCH:
            return Attempt(delay, watch(self._resource, self._version, self._timeout_s))
        if not self._continue:
            self._intake.begin_list()
        if self._phase is Phase.PAGES:
            return Attempt(delay, page(self._resource, self._page_size, self._continue))
        return Attempt(delay, streaming_list(self._resource, self._timeout_s))

    def _next_phase(self) -> Phase:
        if self._version:
            return Phase.CHECK if self._must_check else Phase.WATCH
        return Phase.STREAMING_LIST if self._may_stream_lists else Phase.PAGES

    @property
    def longer_silence_s(self) -> float | None:
        """A streaming list that has become a watch may be silent for longer than before."""
        return self._timeout_s + WATCH_MARGIN_S if self._phase is Phase.WATCH else None

    def take_news(self) -> list[Line]:
        return self._news.take()

    # -- what came ---------------------------------------------------------------------------------------------------

    def take_page(self, body: bytes) -> list[Event]:
        """Raises ApiFailure when it is none."""
        answer = decode_page(body)
        version = answer.metadata.resource_version or ""
        if not version:
            raise ApiFailure("a list without a resourceVersion")
        self._heard()
        if self._phase is Phase.CHECK:
            self._must_check = False
            if runs_behind(version, self._version):
                self.list_anew()
            return []
        return self._take_items(answer, version)

    def _take_items(self, answer: Page, version: str) -> list[Event]:
        events = [event for raw in answer.items or () for event in self._intake.take(raw)[1]]
        self._continue = answer.metadata.continue_ or ""
        return events if self._continue else events + self._complete_list(version)

    def take_line(self, line: bytes) -> list[Event]:
        """One line of a stream. Raises ApiFailure when the stream is of no use any more."""
        event = decode_event(line)
        if event.type == "ERROR":
            raise refusal(bytes(event.object))
        if event.type == "BOOKMARK":
            return self._take_bookmark(event.object)
        version, events = self._intake.take(event.object, is_deletion=event.type == "DELETED")
        if self._phase is Phase.WATCH:  # in a list they come in no order, and the last one says nothing
            self._version = version or self._version
        self._heard()
        return events

    def _take_bookmark(self, raw: msgspec.Raw) -> list[Event]:
        head = decode_bookmark(raw)
        version = head.resource_version or self._version
        self._heard()
        if self._phase is Phase.WATCH:
            self._version = version
            return []
        if INITIAL_EVENTS_END not in (head.annotations or {}):
            # A server that did not understand the question sends additions and never says that these were all.
            self._may_stream_lists = False
            raise ApiFailure("does not know streaming lists")
        return self._complete_list(version)

    def _complete_list(self, version: str) -> list[Event]:
        self._version, self._continue, self._page_size = version, "", PAGE_SIZE
        self._phase = Phase.WATCH
        events = self._intake.end_list()
        if not self._is_synced:
            self._is_synced = True
            events.append(Synced(self._resource.kind))
        return events

    def _heard(self) -> None:
        self._was_heard = True
        self._last_heard = self._clock.monotonic()
        self._failures = self._refusals = 0
        self._news.recovered()

    @property
    def silence_s(self) -> float:
        """Since the server last said something of use. Any thread may ask."""
        return self._clock.monotonic() - self._last_heard

    # -- how it ended ------------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """The server closed the stream in good order."""
        if self._phase is not Phase.WATCH:
            self.failed(ApiFailure("ended a list before it was complete"))
        elif not self._was_heard and self._clock.monotonic() - self._started < SHORTEST_WATCH_S:
            self.failed(ApiFailure("ended a watch at once"))
        else:
            self._heard()

    def failed(self, failure: ApiFailure) -> None:
        """It could not be asked, it refused, it broke off, or it sent nonsense."""
        self._failures += 1
        self._delay_s = delay_s(self._failures, self._random, failure.retry_after_s)
        if failure.status is not None and failure.status not in SAYS_NOTHING_OF_THE_QUESTION:
            self._refusals += 1
        if self._version:
            self._watch_failed(failure)
        else:
            self._list_failed(failure)

    def _watch_failed(self, failure: ApiFailure) -> None:
        was_away_for_long = self._clock.monotonic() - self._last_heard > LONG_ABSENCE_S
        if failure.status == GONE or self._refusals >= MOST_REFUSALS or was_away_for_long:
            self.list_anew()
        self._must_check = True
        if self._failures > 1:  # a watch that breaks and works again at once is no news
            self._news.outage(str(failure))

    def _list_failed(self, failure: ApiFailure) -> None:
        if self._phase is Phase.STREAMING_LIST and self._has_refused_to_stream(failure):
            self._may_stream_lists = False
            self._delay_s = failure.retry_after_s
            return
        if failure.status == GONE and self._continue:
            self._page_size = 0  # the pages expire faster than they are read
        self._continue = ""
        self._news.outage(str(failure))

    def _has_refused_to_stream(self, failure: ApiFailure) -> bool:
        """It said so, or it began to answer another question and never came to the end of the list."""
        is_refusal = failure.status is not None and 400 <= failure.status < 500 and self._refusals > 0
        return is_refusal or self._refusals >= MOST_REFUSALS or isinstance(failure, ApiSilent)

    def list_anew(self) -> None:
        """Whatever was heard so far, begin with a list."""
        self._version, self._continue = "", ""


def runs_behind(theirs: str, ours: str) -> bool:
    return theirs.isdecimal() and ours.isdecimal() and int(theirs) < int(ours)
