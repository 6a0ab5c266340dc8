"""Requests to the API server over HTTP, with the connection pool of `access` underneath."""

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from kbpf import __version__
from kbpf.errors import ApiFailure, ApiSilent
from kbpf.source.api.access import Access, Session
from kbpf.source.api.decode import refusal
from kbpf.source.api.lines import lines_of
from kbpf.source.api.request import ANSWER_WITHIN_S, Request

CONNECT_WITHIN_S = 10.0
CHUNK = 1 << 16
MOST_OF_A_REFUSAL = 1 << 16
OK, UNAUTHORIZED, NOT_FOUND = 200, 401, 404
TAKEN = (200, 201)
MERGE = "application/merge-patch+json"
BROKE = "the connection broke"


Asked = Callable[[str, str, int | None, float], None]
"""Method, host, status of the answer (None: there was none), seconds."""


class HttpAnswer:
    def __init__(self, response: BaseHTTPResponse, url: str) -> None:
        self._response = response
        self._url = url

    def read(self) -> bytes:
        return b"".join(self._chunks())

    def lines(self) -> Iterator[bytes]:
        return lines_of(self._chunks())

    def allow_silence(self, seconds: float) -> None:
        # None when the answer was read to its end already.
        if (connection := self._response.connection) and (socket := getattr(connection, "sock", None)):
            socket.settimeout(seconds)

    def interrupt(self) -> None:
        # The other thread may be done with it just now.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def _chunks(self) -> Iterator[bytes]:
        """Whatever is there, as soon as it is there."""
        response = self._response
        # Both wait for no more than one chunk of the transfer; the first, which knows them, takes half the time.
        parts = response.stream(CHUNK) if response.chunked else iter(lambda: response.read1(CHUNK), b"")
        try:
            yield from parts
        except (HTTPError, OSError) as error:
            raise failure_of(error, self._url) from error


class HttpTransport:
    """Shared by the threads of all resources."""

    def __init__(
        self, access: Access, answer_within_s: float = ANSWER_WITHIN_S, asked: Asked = lambda *exchange: None
    ) -> None:
        """`asked` is told of each request when it is answered or has failed."""
        self._access = access
        self._answer_within_s = answer_within_s
        self._asked = asked

    @contextmanager
    def open(self, request: Request) -> Iterator[HttpAnswer]:
        session = self._access.session()
        response = self._ask(session, "GET", request.resource.path, fields=request.query)
        try:
            if response.status != OK:
                raise self._refusal(response, session, str(request.resource))
            answer = HttpAnswer(response, session.url)
            answer.allow_silence(request.silence_s)
            yield answer
        finally:
            # Not given back to the pool: an answer that was not read to its end would be read by the next request.
            response.close()

    def write(self, method: str, path: str, document: bytes) -> None:
        """POST an object, or PATCH one with what changes. Raises ApiFailure when it is not taken."""
        session = self._access.session()
        response = self._ask(session, method, path, body=document)
        try:
            if response.status not in TAKEN:
                raise self._refusal(response, session, path.rpartition("/")[2])
        finally:
            response.close()

    def _ask(
        self,
        session: Session,
        method: str,
        path: str,
        *,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> BaseHTTPResponse:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"kbpf/{__version__}"}
        if session.authorization:
            headers["Authorization"] = session.authorization
        if body is not None:
            headers["Content-Type"] = MERGE if method == "PATCH" else "application/json"
        host, started, status = urlsplit(session.url).netloc, time.monotonic(), None
        try:
            response = session.pool.request(
                method,
                session.url + path,
                fields=fields,
                body=body,
                headers=headers,
                timeout=Timeout(connect=CONNECT_WITHIN_S, read=self._answer_within_s),
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except (HTTPError, OSError, ValueError) as error:  # ValueError: a URL or a header that cannot be
            raise failure_of(error, session.url) from error
        else:
            status = response.status
            return response
        finally:
            self._asked(method, host, status, time.monotonic() - started)

    def _refusal(self, response: BaseHTTPResponse, session: Session, what: str) -> ApiFailure:
        try:
            body = response.read(MOST_OF_A_REFUSAL)
        except (HTTPError, OSError):
            body = b""
        said = refusal(body, response.status)
        words = f"{session.url}: {response.status}: {said}"
        if response.status == UNAUTHORIZED:
            self._access.renew(session)
            words += " (are the credentials still valid?)"
        elif response.status == NOT_FOUND:
            words += f" (no {what} here: is this the URL of an API server?)"
        return ApiFailure(
            words,
            status=response.status,
            retry_after_s=max(said.retry_after_s, _seconds(response.headers.get("Retry-After"))),
        )


def failure_of(error: Exception, url: str) -> ApiFailure:
    """In words that are the same each time, so that the log can tell what is new."""
    if isinstance(error, ReadTimeoutError | TimeoutError):
        return ApiSilent(f"{url}: silent for too long")
    return ApiFailure(f"{url}: {_words(error)}")


def _words(error: Exception) -> str:
    reason = error.args[0] if isinstance(error, SSLError) and error.args else error
    if isinstance(reason, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return BROKE
    if isinstance(error, SSLError):
        return f"TLS: {getattr(reason, 'verify_message', '') or getattr(reason, 'reason', '') or reason}"
    if isinstance(error, ConnectTimeoutError) and not isinstance(error, NewConnectionError):
        return f"no connection within {CONNECT_WITHIN_S:.0f} s"
    if isinstance(error, NewConnectionError):
        cause = error.__cause__
        return str(getattr(cause, "strerror", None) or cause or error)
    if isinstance(error, ProxyError):
        return f"the proxy: {_words(error.original_error)}"
    if isinstance(error, ValueError):
        return " ".join(str(error).split())[:200]
    return BROKE


def _seconds(header: str | None) -> float:
    """Retry-After in seconds; the API server sends no dates."""
    return float(header) if header and header.isdecimal() and len(header) < 6 else 0.0
