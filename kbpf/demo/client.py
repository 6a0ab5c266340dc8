"""Clients: send requests from a place on a node or outside it, and say what came back.

    client = Client(pod.place)
    answers = client.send(Request("10.96.0.10", 80, count=100))
    assert {answer.backend for answer in answers} == {"10.42.1.10:8080", "10.42.1.11:8080"}

Each call is a child process of its own (caller.py): a process that once joined a cgroup and a namespace is of no use
anywhere else.
"""

import time

import msgspec
from msgspec.structs import replace

from kbpf.demo.child import Child
from kbpf.demo.exchange import Answer, Order, Request, StreamReport, Task
from kbpf.demo.patience import patient
from kbpf.demo.place import Place
from kbpf.errors import KbpfError

MODULE = "kbpf.demo.caller"


class Client(msgspec.Struct, frozen=True):
    """Calls from one place, from a chosen source address if that place has several."""

    place: Place
    source_address: str | None = None

    def send(self, request: Request) -> list[Answer]:
        """All answers of a request, in order."""
        with Child(MODULE, self._order("requests", request)) as child:
            return _answers(child.hear())

    def sessions(self, request: Request) -> "Sessions":
        """Open `count` sockets that stay; the request's mode is connect or sendto."""
        return Sessions(Child(MODULE, self._order("sessions", request)))

    def stream(self, request: Request) -> "Stream":
        """Open new sockets, `pause_s` apart, until it is closed."""
        return Stream(Child(MODULE, self._order("stream", request)))

    def _order(self, task: Task, request: Request) -> Order:
        if request.source_address is None:
            request = replace(request, source_address=self.source_address)
        return Order(task, self.place, request)


class Sessions:
    """Sockets that stay open. `opened` tells how opening went, one answer each, without a backend yet."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.opened = _answers(child.hear())

    def ping(self) -> list[Answer]:
        """One exchange on each socket, in the order of `opened`."""
        return _answers(self._child.ask("ping"))

    def close(self) -> None:
        self._child.close()


class Stream:
    """New connections without end, in the background."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def report(self) -> StreamReport:
        return msgspec.convert(self._child.ask("report"), StreamReport)

    def wait_for(self, attempts: int, timeout_s: float = 10.0) -> StreamReport:
        """The report once this many more attempts are through; what happened before the call is surely behind them."""
        deadline = time.monotonic() + patient(timeout_s)
        target = self.report().attempts + attempts
        while (report := self.report()).attempts < target:
            if time.monotonic() > deadline:
                raise KbpfError(
                    f"{report.attempts} of {target} attempts after {patient(timeout_s)} s: {report.failures[-1:]}"
                )
            time.sleep(0.01)
        return report

    def close(self) -> None:
        self._child.close()


def _answers(values: object) -> list[Answer]:
    return msgspec.convert(values, list[Answer])
