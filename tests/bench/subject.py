"""One proxy on a node of its own, watched from its start on: when its rules are in force, and what that took."""

import selectors
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kbpf.demo.namespaces import Namespace
from tests.bench.cluster_objects import NODE_ADDRESS, SERVICE_RANGE, TELLER_ADDRESS, TELLER_PORT
from tests.bench.usage import PeakMemory, cpu_s, rest
from tests.cluster.namespaces import create_node
from tests.cluster.programs import Program

TARGET_PORTS = (7001, 7002)
PROBE_S = 0.01
SETTLE_S = 2.0
"""Longer than the least time between two syncs: the next change finds the proxy at rest."""


@dataclass(frozen=True, slots=True)
class Cost:
    elapsed_s: float
    cpu_s: float


class BenchNode:
    """A node whose Service "teller" leads to one of its own ports."""

    def __init__(self, name: str) -> None:
        self.namespace: Namespace = create_node(name, [f"{NODE_ADDRESS}/24"])
        self._open = ExitStack()
        self._open.callback(self.namespace.delete)

    def __enter__(self) -> Self:
        self.namespace.ip(f"route add {SERVICE_RANGE} dev eth0")
        self._selector = self._open.enter_context(selectors.DefaultSelector())
        with self.namespace.entered():
            for port in TARGET_PORTS:
                listener = self._open.enter_context(socket.create_server((NODE_ADDRESS, port)))
                self._selector.register(listener, selectors.EVENT_READ, port)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def target_port(self) -> int | None:
        """Where a connection to the teller arrives now; None: nowhere."""
        with self.namespace.entered(), socket.socket() as client:
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect((TELLER_ADDRESS, TELLER_PORT))
            ready = self._selector.select(PROBE_S)
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.accept()[0].close()
            return ready[0][0].data if ready else None


class Subject:
    def __init__(self, node: BenchNode, program: Program, cgroup: Path, timeout_s: float) -> None:
        """`cgroup`: of the program and its children alone."""
        self._node, self._program, self._cgroup = node, program, cgroup
        self._timeout_s = timeout_s
        self.memory = PeakMemory(program.process.pid)
        self._cpu_s = 0.0

    def wait_for(self, target_port: int, since: float) -> Cost:
        """Until connections arrive there; the cost is what the proxy took since the last cost was told."""
        while self._node.target_port() != target_port:
            self._program.check()
            self.memory.sample()
            if time.monotonic() - since > self._timeout_s:
                raise TimeoutError(self._program.last_words("rules did not come"))
        elapsed_s = time.monotonic() - since
        # What a sync still does after its rules are there belongs to it.
        rest(self._program.process.pid, SETTLE_S, self._timeout_s, self.memory.sample)
        before, self._cpu_s = self._cpu_s, cpu_s(self._cgroup)
        return Cost(elapsed_s, self._cpu_s - before)
