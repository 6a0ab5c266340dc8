"""How a request reaches an API server. `HttpTransport` (http.py) is the real one, tests bring their own.

Every way in which it can go wrong is an ApiFailure.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from kbpf.source.api.request import Request


class Answer(Protocol):
    """The body of an answer with status 200. It must be closed."""

    def read(self) -> bytes:
        """All of it."""
        ...

    def lines(self) -> Iterator[bytes]:
        """Each line as soon as it is there, until the server ends the answer in good order."""
        ...

    def allow_silence(self, seconds: float) -> None:
        """From now on the server may be silent for so long."""
        ...

    def interrupt(self) -> None:
        """Called by another thread: whoever reads must fail now."""
        ...


class Transport(Protocol):
    def open(self, request: Request) -> AbstractContextManager[Answer]: ...
