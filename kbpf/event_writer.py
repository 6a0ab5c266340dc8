"""Events in the cluster: written into the API server by a thread of their own, one after the other.

Whoever emits one never waits: there is room for a number of them, and what finds none is dropped, as the log has a line
for each. What cannot be written is tried again for some minutes and then given up, with one line for each reason. What
is said again becomes a number in the Event that is there already.
"""

import logging
import queue
import threading
from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol
from urllib.parse import quote

from kbpf.clock import Clock
from kbpf.errors import ApiFailure
from kbpf.observe.event_object import collection, encode_event, encode_series, event_name
from kbpf.observe.notices import Notice
from kbpf.source.api.backoff import delay_s
from kbpf.source.api.news import News

log = logging.getLogger(__name__)

ROOM = 200
ATTEMPTS = 12
"""With the pauses between them about three minutes."""
MAX_REMEMBERED = 1000
END_WITHIN_S = 1.0
TRIED_AGAIN = (401, 429)
"""Refusals that may not be the last word; all others of the four hundreds are."""
NOT_FOUND = 404


class Write(Protocol):
    def __call__(self, method: str, path: str, document: bytes) -> None:
        """Raises ApiFailure."""
        ...


class Emitted(NamedTuple):
    notice: Notice
    repeats: int
    at: float


class Written(NamedTuple):
    """An Event that the API server holds."""

    path: str
    times: int


class EventWriter:
    def __init__(
        self,
        write: Write,
        node_name: str,
        clock: Clock,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._write = write
        self._node_name = node_name
        self._clock = clock
        self._wait = wait
        self._random = Random()
        self._emitted: queue.Queue[Emitted | None] = queue.Queue(ROOM)
        self._written: dict[Notice, Written] = {}
        self._news = News("events", clock)
        self._stopped = threading.Event()
        # A daemon thread: one that is connecting cannot be interrupted.
        self._thread = threading.Thread(target=self.run, name="events", daemon=True)

    def emit(self, notice: Notice, repeats: int = 0) -> None:
        try:
            self._emitted.put_nowait(Emitted(notice, repeats, self._clock.now()))
        except queue.Full:
            log.debug(f"event dropped, too many wait already: {notice.reason} on {notice.subject}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is still to be written gets one attempt, if there is time."""
        self._stopped.set()
        self.end()
        self._thread.join(END_WITHIN_S)

    def end(self) -> None:
        """Nothing more will be emitted."""
        try:
            self._emitted.put_nowait(None)
        except queue.Full:
            log.debug("events: more than can be written before the end")

    def run(self) -> None:
        while (emitted := self._emitted.get()) is not None:
            try:
                self._deliver(emitted)
            except Exception:
                log.exception(f"event {emitted.notice.reason} failed unexpectedly; please report this")
            self._tell()
            if self._stopped.is_set() and self._emitted.empty():
                return  # the word that this is the end may have found no room

    def _deliver(self, emitted: Emitted) -> None:
        """Until it is written, or is known to be in vain."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._put(emitted)
            except ApiFailure as failure:
                if is_final(failure) or attempt == ATTEMPTS:
                    self._news.problem(None, f"events: {failure}; given up")
                    return
                self._news.outage(str(failure))
                self._tell()
                if self._wait(self._stopped, delay_s(attempt, self._random, failure.retry_after_s)):
                    return
            else:
                self._news.recovered()
                return

    def _put(self, emitted: Emitted) -> None:
        before = self._written.get(emitted.notice)
        if before is None or not self._add_to(before, emitted):
            self._create(emitted)

    def _add_to(self, before: Written, emitted: Emitted) -> bool:
        """False when the API server has forgotten it."""
        times = before.times + 1 + emitted.repeats
        try:
            self._write("PATCH", before.path, encode_series(times, emitted.at))
        except ApiFailure as failure:
            if failure.status == NOT_FOUND:
                return False
            raise
        self._remember(emitted.notice, Written(before.path, times))
        return True

    def _create(self, emitted: Emitted) -> None:
        notice, at = emitted.notice, emitted.at
        path = collection(notice)
        self._write("POST", path, encode_event(notice, self._node_name, at))
        self._remember(notice, Written(f"{path}/{quote(event_name(notice, at), safe='')}", 1))

    def _remember(self, notice: Notice, written: Written) -> None:
        self._written.pop(notice, None)
        self._written[notice] = written
        if len(self._written) > MAX_REMEMBERED:
            del self._written[next(iter(self._written))]

    def _tell(self) -> None:
        for line in self._news.take():
            (log.info if line.is_good else log.warning)(line.words)


def is_final(failure: ApiFailure) -> bool:
    return failure.status is not None and 400 <= failure.status < 500 and failure.status not in TRIED_AGAIN
