"""The backends: one process that listens on many addresses in many namespaces and tells each caller about itself.

An answer is `backend client-address client-port` and the caller's own words, a line for a line. The child runs as
`python -m kbpf.demo.echo`: the first line of its input lists the listeners, its answer means that they all listen.
"""

import contextlib
import selectors
import socket
import sys
from collections.abc import Sequence

import msgspec

from kbpf.demo.child import Child
from kbpf.demo.exchange import Protocol, spell
from kbpf.demo.place import Place

BACKLOG = 1024
DATAGRAM = 2048


class Listener(msgspec.Struct, frozen=True):
    """A backend: where it runs and what it listens on."""

    place: Place
    address: str
    port: int
    protocol: Protocol = "tcp"

    @property
    def name(self) -> str:
        return spell(self.address, self.port)


class EchoServer:
    """Listens from its construction until `close()`, which cuts open connections as a dying pod does."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = tuple(listeners)
        self._child = Child("kbpf.demo.echo", self.listeners)
        self._child.hear()

    def close(self) -> None:
        self._child.close()

    def outlive(self) -> None:
        """Keep listening when the parent ends; whoever removes the node's cgroup ends it."""
        self._child.tell("stay")


class _Echo:
    """The child's half: sockets in a selector, a callable for each."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.place.enter()
            self._listen(listener)

    def serve(self) -> None:
        """Until the parent closes our input; without end when it says a word before."""
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:  # our input
                    if not sys.stdin.readline():
                        return
                    self._selector.unregister(sys.stdin)
                    continue
                # A caller that went away in the middle of an exchange is its own loss.
                with contextlib.suppress(OSError):
                    key.data()

    def _listen(self, listener: Listener) -> None:
        family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
        kind = socket.SOCK_STREAM if listener.protocol == "tcp" else socket.SOCK_DGRAM
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((listener.address, listener.port))
        if listener.protocol == "udp":
            self._watch(listening, lambda: self._answer_datagram(listening, listener.name))
        else:
            listening.listen(BACKLOG)
            self._watch(listening, lambda: self._accept(listening, listener.name))

    def _watch(self, watched: socket.socket, ready: object) -> None:
        watched.setblocking(False)
        self._selector.register(watched, selectors.EVENT_READ, ready)

    def _accept(self, listening: socket.socket, name: str) -> None:
        connection, caller = listening.accept()
        unfinished = bytearray()
        self._watch(connection, lambda: self._answer(connection, name, caller, unfinished))

    def _answer(self, connection: socket.socket, name: str, caller: tuple[str, int], unfinished: bytearray) -> None:
        received = b""
        try:
            received = connection.recv(DATAGRAM)
            *lines, unfinished[:] = (bytes(unfinished) + received).split(b"\n")
            for line in lines:
                connection.sendall(_reply(name, caller, line))
        finally:
            if not received:
                self._selector.unregister(connection)
                connection.close()

    @staticmethod
    def _answer_datagram(listening: socket.socket, name: str) -> None:
        line, caller = listening.recvfrom(DATAGRAM)
        listening.sendto(_reply(name, caller, line.rstrip(b"\n")), caller)


def _reply(name: str, caller: tuple[str, int], line: bytes) -> bytes:
    return f"{name} {caller[0]} {caller[1]} ".encode() + line + b"\n"


def main() -> None:
    echo = _Echo(msgspec.json.decode(sys.stdin.readline(), type=list[Listener]))
    print(msgspec.json.encode("listening").decode(), flush=True)
    echo.serve()


if __name__ == "__main__":
    main()
