"""The HTTP thread: any method and path reach the answer, bad requests do no harm, closing closes."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest

from kbpf.config import ListenAddress
from kbpf.errors import HostError
from kbpf.observe.address_server import AddressServer
from kbpf.observe.http import MAX_CONNECTIONS, TEXT, HttpThread, Listener, Response
from tests.logs import capture_logs

PATIENCE_S = 5
LOOPBACK = ListenAddress("127.0.0.1", 0)


def echo(path: str) -> Response:
    if path == "/broken":
        raise ZeroDivisionError
    return Response(HTTPStatus.OK, path.encode(), TEXT, (("X-Answer", "42"),))


@pytest.fixture
def thread() -> Iterator[HttpThread]:
    running = HttpThread("test")
    yield running
    running.stop()


@pytest.fixture
def listener(thread: HttpThread) -> Listener:
    return thread.listen(LOOPBACK, echo)


def connect(listener: Listener) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", listener.port, timeout=PATIENCE_S)


def raw(listener: Listener, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE_S) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def is_turned_away(listener: Listener) -> bool:
    try:
        return raw(listener, b"GET / HTTP/1.0\r\n\r\n") == b""
    except ConnectionError:  # closed before it was read
        return True


def closes(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PURGE"])
def test_every_method_is_answered_on_one_connection(listener: Listener, method: str):
    connection = connect(listener)
    for body in (None, b"x" * 100):
        connection.request(method, "/some/path?query", body)
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"/some/path")
        assert response.headers["X-Answer"] == "42"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    connection.close()


def test_head_has_the_headers_and_no_body(listener: Listener):
    connection = connect(listener)
    connection.request("HEAD", "/path")
    response = connection.getresponse()
    assert (response.headers["Content-Length"], response.read()) == ("5", b"")
    connection.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(listener: Listener, request_: bytes):
    assert raw(listener, request_).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("request_", [b"", b"GET /", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000])
def test_half_a_request_and_an_endless_one_are_dropped(listener: Listener, request_: bytes):
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE_S) as connection:
        with suppress(OSError):  # it may be closed before all is sent
            connection.sendall(request_)
            connection.shutdown(socket.SHUT_WR)
        assert closes(connection)


def test_an_answer_that_fails_is_a_server_error_and_the_next_one_works(listener: Listener):
    connection = connect(listener)
    with capture_logs() as logs:
        connection.request("GET", "/broken")
        response = connection.getresponse()
        response.read()
    assert (response.status, logs[0]["log_level"]) == (500, "error")
    connection.request("GET", "/next")
    assert connection.getresponse().read() == b"/next"
    connection.close()


def test_closing_ends_open_connections_and_frees_the_port(thread: HttpThread):
    first = thread.listen(LOOPBACK, echo)
    connection = connect(first)
    connection.request("GET", "/")
    connection.getresponse().read()
    port = first.port
    first.close()
    assert closes(connection.sock)
    connection.close()
    again = thread.listen(ListenAddress("127.0.0.1", port), echo)
    assert raw(again, b"GET /again HTTP/1.0\r\n\r\n").endswith(b"/again")


def test_whoever_opens_too_many_connections_is_turned_away_and_the_rest_are_served(listener: Listener):
    idle = [socket.create_connection(("127.0.0.1", listener.port), PATIENCE_S) for _ in range(MAX_CONNECTIONS)]
    eventually(lambda: is_turned_away(listener))
    for each in idle:
        each.close()
    eventually(lambda: raw(listener, b"GET /x HTTP/1.0\r\n\r\n").endswith(b"/x"))


def test_the_wildcard_is_open_in_both_families(thread: HttpThread):
    listener = thread.listen(ListenAddress("0.0.0.0", 0), echo)
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, listener.port), PATIENCE_S):
            pass


def test_two_families_can_have_one_port_each(thread: HttpThread):
    first = thread.listen(ListenAddress("0.0.0.0", 0), echo, one_family=True)
    second = thread.listen(ListenAddress("::", first.port), lambda _: Response(HTTPStatus.OK, b"six"), one_family=True)
    assert raw(first, b"GET /four HTTP/1.0\r\n\r\n").endswith(b"/four")
    with socket.create_connection(("::1", second.port), PATIENCE_S) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).endswith(b"six")


def eventually(is_so) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if is_so():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, "never came about"
        time.sleep(0.02)


# -- a server on a configured address ----------------------------------------------------------------------------------


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other


def test_a_taken_address_is_said_once_and_served_when_it_is_free(taken: socket.socket):
    address = ListenAddress("127.0.0.1", taken.getsockname()[1])
    reasons: list[str] = []
    server = AddressServer("health", address, echo, failed=reasons.append, retry_s=0.01)
    with capture_logs() as logs:
        server.start()
        threading.Event().wait(0.05)
        taken.close()
        eventually(lambda: socket.create_connection(("127.0.0.1", address.port), 1).close() is None)
        eventually(lambda: len(logs) == 2)
        server.stop()
    assert [entry["event"] for entry in logs] == [
        f"health server: {address}: Address already in use; trying again every 0 s",
        f"health server: listening on {address}",
    ]
    assert reasons == [f"health server: {address}: Address already in use"]


def test_a_taken_address_ends_the_start_where_the_operator_wants_it_so(taken: socket.socket):
    address = ListenAddress("127.0.0.1", taken.getsockname()[1])
    server = AddressServer("metrics", address, echo, must_listen=True)
    with pytest.raises(HostError, match=r"metrics server: .*: Address already in use"):
        server.start()
    server.stop()
