"""The calling side, in a child process of its own: enters its place, opens sockets, sends, and reports what it saw.

Run by client.py as `python -m kbpf.demo.caller`. The first line of its input orders one of three tasks: `requests` and
an end, `sessions` that stay open and are pinged by further lines, or a `stream` of new connections, about which each
further line asks for a report.
"""

import errno
import io
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ParamSpec

import msgspec
from msgspec.structs import replace

from kbpf.demo.exchange import Answer, Order, Request, StreamReport, spell
from kbpf.demo.patience import patient

P = ParamSpec("P")
DATAGRAM = 2048
# A report stays one line of fair length even when everything fails.
REPORTED_FAILURES = 20


class Caller:
    """One socket and the exchanges on it."""

    def __init__(self, request: Request, number: int = 0) -> None:
        self._request = request
        is_ipv6 = request.mapped or ":" in request.address
        kind = socket.SOCK_STREAM if request.protocol == "tcp" else socket.SOCK_DGRAM
        self._socket = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, kind)
        self._socket.settimeout(patient(request.timeout_s))
        self._pending = b""
        self._target = ("::ffff:" + request.address if request.mapped else request.address, request.port)
        if request.source_address is not None or request.source_port is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port = 0 if request.source_port is None else request.source_port + number
            self._socket.bind((request.source_address or ("::" if is_ipv6 else "0.0.0.0"), port))  # noqa: S104

    def connect(self) -> None:
        self._socket.connect(self._target)

    def send_connected(self) -> Answer:
        words = _words()
        self._socket.sendall(words)
        return _read(self._receive(words)[0], self._socket.getpeername())

    def send_unconnected(self) -> Answer:
        words = _words()
        self._socket.sendto(words, self._target)
        return _read(*self._receive(words))

    def close(self) -> None:
        self._socket.close()

    def _receive(self, words: bytes) -> tuple[bytes, tuple[str, int]]:
        """The line that answers these words; late answers to earlier ones are dropped."""
        while True:
            received, origin = self._socket.recvfrom(DATAGRAM)
            if not received:
                raise ConnectionResetError(errno.ECONNRESET, "closed without an answer")
            *lines, self._pending = (self._pending + received).split(b"\n")
            for line in lines:
                if line.endswith(words.strip()):
                    return line, origin


def carry_out(request: Request) -> list[Answer]:
    """All exchanges of a request, one after the other."""
    shared = Caller(request) if request.mode in ("one-socket", "mixed") else None
    answers = []
    for number in range(request.count):
        if number:
            time.sleep(request.pause_s)
        answers.append(
            _observed(_on_own_socket, request, number)
            if shared is None
            else _observed(_on_shared_socket, shared, request, number)
        )
    return answers


def hold_sessions(orders: io.FileIO, request: Request) -> None:
    """Open `count` sockets and report how that went; then ping them all for each further line of input."""
    callers = [Caller(request, number) for number in range(request.count)]
    ping = Caller.send_connected if request.mode == "connect" else Caller.send_unconnected
    _say([_observed(_open, caller, request) for caller in callers])
    for _ in orders:
        _say([_observed(ping, caller) for caller in callers])


def stream(orders: io.FileIO, request: Request) -> None:
    """New sockets without end, `pause_s` apart; a report for each line of input, the end when the input closes."""
    attempts, failures, backends = 0, list[Answer](), Counter[str]()
    while True:
        if select.select([orders], [], [], request.pause_s)[0]:
            if not orders.readline():
                return
            _say(StreamReport(attempts, failures[:REPORTED_FAILURES], dict(backends)))
        answer = _observed(_on_own_socket, request, attempts)
        attempts += 1
        if answer.backend is None:
            failures.append(answer)
        else:
            backends[answer.backend] += 1


def _on_own_socket(request: Request, number: int) -> Answer:
    with closing(Caller(request, number)) as caller:
        if request.mode == "sendto":
            return caller.send_unconnected()
        caller.connect()
        return caller.send_connected()


def _on_shared_socket(caller: Caller, request: Request, number: int) -> Answer:
    if request.mode == "mixed" and number % 2:
        caller.connect()
        return caller.send_connected()
    return caller.send_unconnected()


def _open(caller: Caller, request: Request) -> Answer:
    if request.mode == "connect":
        caller.connect()
    return Answer()


def _observed(exchange: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
    started = time.perf_counter_ns()
    try:
        answer = exchange(*args, **kwargs)
    except OSError as failure:
        answer = Answer(error=_name(failure))
    return replace(answer, latency_us=(time.perf_counter_ns() - started) / 1000)


def _name(failure: OSError) -> str:
    if isinstance(failure, TimeoutError):
        return "timeout"
    return errno.errorcode.get(failure.errno or 0, str(failure))


def _words() -> bytes:
    return f"{time.monotonic_ns()}\n".encode()


def _read(reply: bytes, peer: Sequence[Any]) -> Answer:
    backend, source, source_port, _ = reply.decode().split()
    return Answer(backend, source, int(source_port), spell(peer[0], peer[1]))


def _say(report: object) -> None:
    print(msgspec.json.encode(report).decode(), flush=True)


def main() -> None:
    # Unbuffered, or select would not see a line that the buffer swallowed together with the one before.
    orders = io.FileIO(sys.stdin.fileno(), closefd=False)
    order = msgspec.json.decode(orders.readline(), type=Order)
    order.place.enter()
    match order.task:
        case "requests":
            _say(carry_out(order.request))
        case "sessions":
            hold_sessions(orders, order.request)
        case "stream":
            stream(orders, order.request)


if __name__ == "__main__":
    main()
