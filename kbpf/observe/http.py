"""A thread that answers HTTP on any number of addresses: /healthz, /metrics, the health port of a Service.

Addresses are bound in the thread of whoever asks, which learns at once when that fails; connections are served in this
one, so nobody who is slow, or opens many, holds up the control thread or costs a thread. Answers only read snapshots.
"""

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from kbpf import __version__
from kbpf.config import ListenAddress

log = logging.getLogger(__name__)

IDLE_S = 10.0
MAX_HEAD = 8192
MAX_BODY = 1 << 20
MAX_CONNECTIONS = 256
"""Of one thread. These ports are open to the network; whoever comes last is turned away."""
ACCEPT_AGAIN_S = 1.0
END_OF_HEAD = b"\r\n\r\n"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
SERVER = f"kbpf/{__version__}"


class Response(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Answer = Callable[[str], Response]
"""From the path of a request, without its query. Called in the HTTP thread; must not wait."""

NOT_FOUND = Response(HTTPStatus.NOT_FOUND, b"404 page not found\n", TEXT)
BAD_REQUEST = Response(HTTPStatus.BAD_REQUEST, b"400 bad request\n", TEXT)


class Request(NamedTuple):
    method: str
    path: str
    body_length: int
    keeps_alive: bool


class Conversation:
    """One connection and what has been received of it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._received = b""

    async def head(self) -> bytes:
        """Up to and with the empty line. Raises EOFError when there is none."""
        while END_OF_HEAD not in self._received:
            if len(self._received) > MAX_HEAD:
                raise EOFError
            await self._receive()
        head, _, self._received = self._received.partition(END_OF_HEAD)
        return head

    async def skip(self, length: int) -> None:
        while length > len(self._received):
            length -= len(self._received)
            self._received = b""
            await self._receive()
        self._received = self._received[length:]

    async def send(self, content: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, content)

    def close(self) -> None:
        self._connection.close()

    async def _receive(self) -> None:
        received = await asyncio.get_running_loop().sock_recv(self._connection, MAX_HEAD)
        if not received:
            raise EOFError
        self._received += received


class Listener:
    """An open address."""

    def __init__(self, thread: "HttpThread", bound: socket.socket, answer: Answer) -> None:
        bound.setblocking(False)
        self._thread = thread
        self._socket = bound
        self._answer = answer
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Open connections end as well. Once it returns the address is free."""
        self._thread.run(self._end())
        self._thread.forget(self)

    async def begin(self) -> None:
        self._accept_from_now_on()

    async def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        tasks = [*self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept_from_now_on(self) -> None:
        # Not `sock_accept`: a connection that it has accepted is lost when it is cancelled just then.
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:  # such as no descriptor left; the listener would be ready again and again
            loop.remove_reader(self._socket)
            loop.call_later(ACCEPT_AGAIN_S, self._accept_from_now_on)
            return
        if self._thread.connections < MAX_CONNECTIONS:
            self._begin(Conversation(connection))
        else:
            connection.close()

    def _begin(self, conversation: Conversation) -> None:
        task = asyncio.get_running_loop().create_task(self._talk(conversation))
        self._connections.add(task)
        self._thread.connections += 1

        def ended(_: object) -> None:
            """Also of one that was cancelled before it began."""
            conversation.close()
            self._connections.discard(task)
            self._thread.connections -= 1

        task.add_done_callback(ended)

    async def _talk(self, conversation: Conversation) -> None:
        with suppress(OSError, EOFError, TimeoutError):
            while await self._serve(conversation):
                pass

    async def _serve(self, conversation: Conversation) -> bool:
        """One request. False when there is no next one on this connection."""
        async with asyncio.timeout(IDLE_S):
            request = parsed(await conversation.head())
            if request is None:
                await conversation.send(_encoded(BAD_REQUEST, "GET", keeps_alive=False))
                return False
            await conversation.skip(request.body_length)
            response = self._answer_of(request.path)
            await conversation.send(_encoded(response, request.method, keeps_alive=request.keeps_alive))
        return request.keeps_alive

    def _answer_of(self, path: str) -> Response:
        try:
            return self._answer(path)
        except Exception:
            log.exception(f"no answer for {path!a:.80}; please report this")
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"500 internal server error\n", TEXT)


class HttpThread:
    """Runs from the moment it is made until `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._listeners: list[Listener] = []
        self.connections = 0
        self._thread.start()

    def stop(self) -> None:
        for listener in [*self._listeners]:
            listener.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self, address: ListenAddress, answer: Answer, *, one_family: bool = False) -> Listener:
        """Raises OSError when the address cannot be bound. `one_family`: a wildcard means its own family only."""
        listener = Listener(self, bind(address, one_family=one_family), answer)
        self.run(listener.begin())
        self._listeners.append(listener)
        return listener

    def forget(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def run(self, coroutine: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(IDLE_S)


def bind(address: ListenAddress, *, one_family: bool) -> socket.socket:
    """A wildcard is open in both families, as in Go, unless told otherwise."""
    is_wildcard = address.host in ("0.0.0.0", "::")  # noqa: S104  (compared with)
    is_dual = is_wildcard and not one_family and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in address.host else socket.AF_INET
    host = "::" if is_dual else address.host
    try:
        return socket.create_server((host, address.port), family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        number = error.errno or errno.EINVAL
        raise OSError(number, os.strerror(number)) from error  # without the address, which the caller names


def parsed(head: bytes) -> Request | None:
    """None when it is no request of HTTP/1, or one with a body of unknown length."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    is_wrong = len(words) != 3 or not words[2].startswith("HTTP/1.") or "transfer-encoding" in headers
    if is_wrong or not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY:
        return None
    connection = headers.get("connection", "").lower()
    keeps_alive = connection != "close" if words[2] == "HTTP/1.1" else connection == "keep-alive"
    return Request(words[0], words[1].partition("?")[0], int(length), keeps_alive)


def _encoded(response: Response, method: str, *, keeps_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Server: {SERVER}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {response.content_type}",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(response.body)}",
        f"Connection: {'keep-alive' if keeps_alive else 'close'}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head if method == "HEAD" else head + response.body
