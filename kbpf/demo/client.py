"""Clients: send requests from a place on a node or outside it, and say what came back.

    client = Client(pod.place)
    answers = client.send(Request("10.96.0.10", 80, count=100))
    assert {answer.backend for answer in answers} == {"10.42.1.10:8080", "10.42.1.11:8080"}

Each call is a child process of its own (caller.py): a process that once joined a cgroup and a namespace is of no use
anywhere else.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kbpf.demo.child import Child
from kbpf.demo.exchange import Answer, Request, StreamReport
from kbpf.demo.patience import patient
from kbpf.demo.place import Place
from kbpf.errors import KbpfError

MODULE = "kbpf.demo.caller"


@dataclass(frozen=True, slots=True)
class Client:
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

    def _order(self, task: str, request: Request) -> dict[str, object]:
        if request.source_address is None:
            request = replace(request, source_address=self.source_address)
        return {"task": task, "place": asdict(self.place), "request": asdict(request)}


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
        report = self._child.ask("report")
        return StreamReport(report["attempts"], _answers(report["failures"]), report["backends"])

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


def _answers(values: Sequence[dict[str, Any]]) -> list[Answer]:
    return [Answer(**value) for value in values]
