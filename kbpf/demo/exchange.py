"""One message and its answer: what a caller is asked to do, and what it saw.

Values only, shared by the parent (client.py), the calling child (caller.py) and the echo server (echo.py). They travel
between the processes as JSON.
"""

from typing import Literal

import msgspec

from kbpf.demo.place import Place

Protocol = Literal["tcp", "udp"]
# How a UDP caller uses sockets. TCP knows "connect" alone: a new connection for each exchange.
#   connect     a new connected socket for each exchange
#   sendto      a new unconnected socket for each exchange
#   one-socket  one unconnected socket for all
#   mixed       one socket for all, which sends unconnected and connects, by turns
Mode = Literal["connect", "sendto", "one-socket", "mixed"]
Task = Literal["requests", "sessions", "stream"]


class Request(msgspec.Struct, frozen=True):
    """`count` exchanges with one destination."""

    address: str
    port: int
    protocol: Protocol = "tcp"
    mode: Mode = "connect"
    count: int = 1
    timeout_s: float = 1.5
    pause_s: float = 0.0
    source_address: str | None = None
    source_port: int | None = None
    mapped: bool = False
    """Reach an IPv4 address as ::ffff:a.b.c.d from an IPv6 socket, as Go and Java do."""


class Order(msgspec.Struct, frozen=True):
    """What a calling child is told first."""

    task: Task
    place: Place
    request: Request


class Answer(msgspec.Struct, frozen=True):
    """What came of one exchange. Either `error` is set, the errno's name or "timeout", or all the others are."""

    backend: str | None = None
    """Who answered, as it calls itself."""
    source: str | None = None
    """The address that the backend saw."""
    source_port: int | None = None
    peer: str | None = None
    """The other end as this end sees it: getpeername, or where the datagram came from."""
    error: str | None = None
    latency_us: float = 0.0


class StreamReport(msgspec.Struct, frozen=True):
    """What a stream of new connections has seen since it began."""

    attempts: int
    failures: list[Answer]
    """The first ones; `failed` counts all."""
    backends: dict[str, int]

    @property
    def failed(self) -> int:
        return self.attempts - sum(self.backends.values())


def spell(address: str, port: int) -> str:
    """`10.0.0.1:80`, `[fd00::1]:80`: how endpoints are written everywhere in the demo and the tests."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
