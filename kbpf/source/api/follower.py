"""The thread body of one resource: asks the API server what the reflector wants to know, hands on what comes of it."""

import logging
import threading
from collections.abc import Callable, Iterable

from kbpf.errors import ApiFailure
from kbpf.model.events import Event
from kbpf.source.api.news import Line
from kbpf.source.api.reflector import Reflector
from kbpf.source.api.request import Request
from kbpf.source.api.transport import Answer, Transport

Wait = Callable[[threading.Event, float], bool]

log = logging.getLogger(__name__)


class Follower:
    """`wait` is how it waits: until the event is set, for so many seconds at most."""

    def __init__(
        self,
        reflector: Reflector,
        transport: Transport,
        emit: Callable[[Event], None],
        wait: Wait = threading.Event.wait,
    ) -> None:
        self._reflector = reflector
        self._transport = transport
        self._emit = emit
        self._wait = wait
        self._stopped = threading.Event()
        self._answer: Answer | None = None

    def run(self) -> None:
        """Until `stop`. Nothing that comes from outside ends it."""
        while True:
            attempt = self._reflector.next()
            if self._wait(self._stopped, attempt.delay_s):
                return
            try:
                self._perform(attempt.request)
            except ApiFailure as failure:
                if self._stopped.is_set():
                    return
                self._reflector.failed(failure)
            except Exception:
                # A defect of ours. The kernel keeps its last good state, and a fresh list may well succeed.
                log.exception(f"{attempt.request.resource}: failed unexpectedly; please report this")
                self._reflector.list_anew()
                self._reflector.failed(ApiFailure("unexpected"))
            tell(self._reflector.take_news())

    def stop(self) -> None:
        """Called by another thread."""
        self._stopped.set()
        if answer := self._answer:
            answer.interrupt()

    def _perform(self, request: Request) -> None:
        with self._transport.open(request) as answer:
            self._answer = answer
            try:
                if self._stopped.is_set():  # it may have come before there was an answer to interrupt
                    return
                if request.is_stream:
                    self._read_lines(answer, request.silence_s)
                else:
                    self._deliver(self._reflector.take_page(answer.read()))
            finally:
                self._answer = None

    def _read_lines(self, answer: Answer, silence_s: float) -> None:
        for line in answer.lines():
            self._deliver(self._reflector.take_line(line))
            longer_s = self._reflector.longer_silence_s
            if longer_s is not None and longer_s != silence_s:
                silence_s = longer_s
                answer.allow_silence(silence_s)
            tell(self._reflector.take_news())
        self._reflector.ended()

    def _deliver(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._stopped.is_set():
                return
            self._emit(event)


def tell(lines: Iterable[Line]) -> None:
    for line in lines:
        if line.is_good:
            log.info(line.words)
        else:
            log.warning(line.words)
