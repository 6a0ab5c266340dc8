"""A client that stays: a child process in one place, which makes flows and keeps sessions as it is told.

`Agent` is the parent's half. One agent a place serves a whole suite, because starting a process costs more than a
hundred flows. The child runs as `python -m tests.scenarios.harness.agent` and speaks in lines of JSON.
"""

import errno
import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from kbpf.demo.child import Child
from kbpf.demo.exchange import Answer, spell
from kbpf.demo.patience import patient
from kbpf.demo.place import Place

DATAGRAM = 2048
HEAL_TIMEOUT_S = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """What to talk to, and with which kind of socket."""

    address: str
    port: int
    protocol: str
    mode: str
    source: str | None
    timeout_s: float

    def socket(self) -> socket.socket:
        is_ipv6 = self.mode == "mapped" or ":" in self.address
        kind = socket.SOCK_STREAM if self.protocol == "TCP" else socket.SOCK_DGRAM
        made = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, kind)
        made.settimeout(patient(self.timeout_s))
        if self.source is not None:
            made.bind((self.source, 0))
        return made

    @property
    def destination(self) -> tuple[str, int]:
        return ("::ffff:" + self.address if self.mode == "mapped" else self.address), self.port

    @property
    def is_connected(self) -> bool:
        return self.mode not in ("sendto", "one-socket")


class Agent:
    """The parent's half; every call is one question and one answer."""

    def __init__(self, place: Place) -> None:
        self._child = Child("tests.scenarios.harness.agent", place)

    def flows(self, targets: list[Target], count: int) -> list[list[Answer]]:
        """`count` flows to each target, by turns; the answers of each round. A round of silence is the last one."""
        return [[Answer(**answer) for answer in answers] for answers in self._ask("flows", targets, count=count)]

    def open(self, name: str, target: Target) -> Answer:
        return Answer(**self._ask("open", [target], name=name))

    def ping(self, name: str) -> Answer:
        return Answer(**self._ask("ping", name=name))

    def heal(self, name: str, allowed: list[str], within_s: float) -> Answer:
        """Ping until one of `allowed` answers. A socket that the kernel ended is opened anew, as applications do."""
        return Answer(**self._ask("heal", name=name, allowed=allowed, within_s=within_s))

    def close_sessions(self) -> None:
        self._ask("close_sessions")

    def close(self) -> None:
        self._child.close()

    def _ask(self, task: str, targets: list[Target] | None = None, **details: object) -> Any:
        return self._child.ask({"task": task, "targets": targets or [], **details})


class _Session:
    """The child's half of an open connection or socket."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.socket = target.socket()

    def open(self) -> Answer:
        if self.target.is_connected:
            self.socket.connect(self.target.destination)
        return self.exchange()

    def exchange(self) -> Answer:
        return _exchange(self.socket, self.target)

    def heal(self, allowed: list[str], within_s: float) -> Answer:
        deadline = time.monotonic() + patient(within_s)
        self.socket.settimeout(patient(HEAL_TIMEOUT_S))
        while True:
            answer = _observed(self.exchange)
            if answer.backend in allowed or time.monotonic() > deadline:
                self.socket.settimeout(patient(self.target.timeout_s))
                return answer
            if answer.error in ("ECONNABORTED", "EDESTADDRREQ", "EPIPE"):
                self.socket.close()
                self.socket = self.target.socket()
                _observed(self.open)
            time.sleep(0.01)


class _Tasks:
    """What the child can be told to do; each method is one task."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def flows(self, targets: list[Target], count: int) -> list[list[Answer]]:
        if targets[0].mode == "one-socket":
            with closing(targets[0].socket()) as shared:
                return _rounds(lambda target: _exchange(shared, target), targets, count)
        return _rounds(_on_own_socket, targets, count)

    def open(self, targets: list[Target], name: str) -> Answer:
        self._sessions[name] = _Session(targets[0])
        return _observed(self._sessions[name].open)

    def ping(self, targets: list[Target], name: str) -> Answer:
        return _observed(self._sessions[name].exchange)

    def heal(self, targets: list[Target], name: str, allowed: list[str], within_s: float) -> Answer:
        return self._sessions[name].heal(allowed, within_s)

    def close_sessions(self, targets: list[Target]) -> None:
        for session in self._sessions.values():
            session.socket.close()
        self._sessions.clear()


def _rounds(exchange: Callable[[Target], Answer], targets: list[Target], count: int) -> list[list[Answer]]:
    rounds: list[list[Answer]] = []
    while len(rounds) < count:
        rounds.append([_observed(exchange, target) for target in targets])
        if any(answer.error == "timeout" for answer in rounds[-1]):
            break
    return rounds


def _on_own_socket(target: Target) -> Answer:
    with closing(target.socket()) as made:
        if target.is_connected:
            made.connect(target.destination)
        return _exchange(made, target)


def _exchange(made: socket.socket, target: Target) -> Answer:
    """One message and the answer to it; answers to earlier ones, which were given up, are passed over."""
    words = f"{time.monotonic_ns()}\n".encode()
    if target.is_connected:
        made.sendall(words)
    else:
        made.sendto(words, target.destination)
    while True:
        reply, origin = made.recvfrom(DATAGRAM)
        if not reply:
            raise ConnectionResetError(errno.ECONNRESET, "closed without an answer")
        if reply.endswith(words):
            break
    peer = made.getpeername() if target.is_connected else origin
    backend, source, source_port, _ = reply.decode().split()
    return Answer(backend, source, int(source_port), spell(peer[0], peer[1]))


def _observed(exchange: Callable[..., Answer], *arguments: object) -> Answer:
    started = time.perf_counter()
    try:
        answer = exchange(*arguments)
    except TimeoutError:
        answer = Answer(error="timeout")
    except OSError as failure:
        answer = Answer(error=errno.errorcode.get(failure.errno or 0, str(failure)))
    return replace(answer, latency_us=(time.perf_counter() - started) * 1e6)


def main() -> None:
    Place(**json.loads(sys.stdin.readline())).enter()
    tasks = _Tasks()
    for line in sys.stdin:
        order = json.loads(line)
        task = getattr(tasks, order.pop("task"))
        targets = [Target(**target) for target in order.pop("targets")]
        print(msgspec.json.encode(task(targets, **order)).decode(), flush=True)


if __name__ == "__main__":
    main()
