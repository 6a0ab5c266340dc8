"""A transport whose answers were written down beforehand, for tests that neither sleep nor open a socket."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kbpf.clock import FakeClock
from kbpf.errors import ApiFailure
from kbpf.source.api.request import Request


class ScriptedAnswer:
    def __init__(self, content: bytes | Iterable[bytes | Exception]) -> None:
        self.content = content
        self.silences: list[float] = []

    def read(self) -> bytes:
        assert isinstance(self.content, bytes)
        return self.content

    def lines(self) -> Iterator[bytes]:
        assert not isinstance(self.content, bytes)
        for line in self.content:
            if isinstance(line, Exception):
                raise line
            yield line

    def allow_silence(self, seconds: float) -> None:
        self.silences.append(seconds)

    def interrupt(self) -> None:
        raise AssertionError("nothing here can be waited for")


class ScriptedTransport:
    """Answers each resource from its own script; when one has no more to say, `at_end` is called for it."""

    def __init__(self, scripts: dict[str, list[object]], at_end: Callable[[str], None]) -> None:
        self.scripts = {resource: iter(script) for resource, script in scripts.items()}
        self.at_end = at_end
        self.asked: dict[str, list[Request]] = {resource: [] for resource in scripts}
        self.answers: list[ScriptedAnswer] = []
        self.open_answers = 0

    @contextmanager
    def open(self, request: Request) -> Iterator[ScriptedAnswer]:
        resource = str(request.resource)
        self.asked[resource].append(request)
        content = next(self.scripts[resource], None)
        if content is None:
            self.at_end(resource)
            content = ApiFailure("the script is over")
        if isinstance(content, Exception):
            raise content
        answer = ScriptedAnswer(content)  # type: ignore[arg-type]
        self.answers.append(answer)
        self.open_answers += 1
        try:
            yield answer
        finally:
            self.open_answers -= 1


def waiting_by(clock: FakeClock) -> Callable[[threading.Event, float], bool]:
    """A wait that only moves the clock."""

    def wait(stopped: threading.Event, seconds: float) -> bool:
        clock.advance(seconds)
        return stopped.is_set()

    return wait
