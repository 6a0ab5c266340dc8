"""Pods behind a Service, callers of it in pods, on nodes and outside, and the load that they make together.

What listens and calls in the pods is the demo's own, which counts every failure. Whoever changes something on the live
cluster does it under `load` and asks that for the losses.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbpf.demo.client import Client, Sessions, Stream
from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.exchange import Request, spell
from kbpf.demo.place import Place
from tests.cluster.programs import ProgramFailed
from tests.e2e.cluster import Cluster
from tests.e2e.images import AGNHOST
from tests.e2e.network import CONTROL
from tests.e2e.node import Node

PORT, TARGET_PORT, NODE_PORT = 80, 8080, 30080
HELD = 20
PAUSE_S = 0.004
SETTLE_S = 5
"""How long calls go on after a change before they are counted."""
ROLES = ("backend", "client")
SELECTOR = f"--selector=app in ({','.join(ROLES)})"
SERVED_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Caller:
    """Where calls come from, and which address and port they call."""

    place: Place
    address: str
    port: int

    def request(self, count: int, pause_s: float = 0.0) -> Request:
        return Request(self.address, self.port, count=count, pause_s=pause_s, timeout_s=5.0)

    @property
    def destination(self) -> str:
        return spell(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Workload:
    """Callers by family: one in a pod of each node, one on each node, and for each node one outside of the cluster."""

    callers: tuple[Caller, ...]
    callers_v6: tuple[Caller, ...]
    backends: frozenset[str]


@dataclass(frozen=True, slots=True)
class Losses:
    """What a change cost, over all callers."""

    tried: int
    failed: int
    held: int
    lost: int
    errors: tuple[str, ...] = ()

    @property
    def has_any(self) -> bool:
        return bool(self.failed or self.lost)

    def __str__(self) -> str:
        errors = f": {', '.join(self.errors)}" if self.errors else ""
        return (
            f"new connections tried {self.tried}, lost {self.failed}{errors}; long ones held {self.held}, "
            f"lost {self.lost}"
        )


class Load:
    """New connections all the time and others that are held, all begun before the change."""

    def __init__(self, streams: Sequence[Stream], sessions: Sequence[Sessions]) -> None:
        self._streams = streams
        self._sessions = sessions

    def losses(self) -> Losses:
        """Since the load began, after a while in which what was changed can settle."""
        time.sleep(SETTLE_S)
        reports = [stream.report() for stream in self._streams]
        held = [answer for session in self._sessions for answer in session.ping()]
        return Losses(
            sum(report.attempts for report in reports),
            sum(report.failed for report in reports),
            len(held),
            sum(answer.error is not None for answer in held),
            tuple(sorted({str(failure.error) for report in reports for failure in report.failures})),
        )

    def refuse_failures(self) -> None:
        """Before a change everything works, or the figures after it would mean nothing."""
        answers = [answer for session in self._sessions for answer in session.opened]
        answers += [answer for stream in self._streams for answer in stream.wait_for(20).failures]
        errors = {str(answer.error) for answer in answers if answer.error}
        if errors:
            raise ProgramFailed(f"connections fail before anything was changed: {sorted(errors)}")


@contextmanager
def load(callers: Sequence[Caller]) -> Iterator[Load]:
    with ExitStack() as running:
        streams = [_open(running, Client(c.place).stream(c.request(1, PAUSE_S))) for c in callers]
        sessions = [_open(running, Client(c.place).sessions(c.request(HELD))) for c in callers]
        found = Load(streams, sessions)
        found.refuse_failures()
        yield found


def _open(running: ExitStack, connection: Any) -> Any:
    running.callback(connection.close)
    return connection


@contextmanager
def workload(cluster: Cluster) -> Iterator[Workload]:
    """A backend and a client on each node, and a Service of both families in front of the backends."""
    control_plane = cluster.control_plane
    control_plane.apply(_service(), *(_pod(node, role) for node in cluster.nodes for role in ROLES))
    control_plane.kubectl("wait", "--for=condition=Ready", "pod", SELECTOR, "--timeout=120s")
    places = {address: place for node in cluster.nodes for address, place in pod_places(node).items()}
    pods = control_plane.get("pods", SELECTOR)["items"]
    addresses = {role: [_addresses_of(p) for p in pods if p["metadata"]["labels"]["app"] == role] for role in ROLES}
    clients = [places[first] for first, *_ in addresses["client"]]
    listening = [address for pod in addresses["backend"] for address in pod]
    server = EchoServer([Listener(places[address], address, TARGET_PORT) for address in listening])
    try:
        v4, v6 = control_plane.get("service", "called")["spec"]["clusterIPs"]
        backends = frozenset(listener.name for listener in server.listeners)
        yield Workload(_callers(cluster.nodes, clients, v4), _callers(cluster.nodes, clients, v6), backends)
    finally:
        server.close()
        control_plane.kubectl("delete", "service,pod", "--all", "--wait=false")


def wait_until_served(callers: Sequence[Caller]) -> None:
    deadline = time.monotonic() + SERVED_TIMEOUT_S
    for caller in callers:
        while error := Client(caller.place).send(caller.request(1))[0].error:
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{caller.destination} is not served: {error}")
            time.sleep(0.5)


def _callers(nodes: Sequence[Node], clients: Sequence[Place], cluster_ip: str) -> tuple[Caller, ...]:
    """Of the family of this address."""
    on_nodes = [Place(node.addresses.namespace.path, str(node.cgroup)) for node in nodes]
    inside = [Caller(place, cluster_ip, PORT) for place in (*clients, *on_nodes)]
    addresses = [node.addresses.v6 if ":" in cluster_ip else node.addresses.v4 for node in nodes]
    return (*inside, *(Caller(Place(CONTROL.path), address, NODE_PORT) for address in addresses))


def pod_places(node: Node) -> dict[str, Place]:
    """Where each pod of the node runs, by its addresses: namespaces of the node's processes other than its own."""
    own = Path(node.addresses.namespace.path).stat().st_ino
    places: dict[str, Place] = {}
    seen = {own}
    for directory, _, _ in os.walk(node.cgroup):
        for pid in Path(directory, "cgroup.procs").read_text().split():
            path = f"/proc/{pid}/ns/net"
            try:
                inode = Path(path).stat().st_ino
            except OSError:
                continue  # It has ended meanwhile.
            if inode not in seen:
                seen.add(inode)
                place = Place(path, str(node.cgroup))
                places.update(dict.fromkeys(_addresses_in(path), place))
    return places


def _addresses_in(namespace: str) -> list[str]:
    command = ["nsenter", f"--net={namespace}", "ip", "-oneline", "address", "show", "scope", "global"]
    return re.findall(r"inet6? (\S+)/", subprocess.run(command, capture_output=True, text=True, check=True).stdout)


# -- objects ---------------------------------------------------------------------------------------------------------


def _addresses_of(pod: dict[str, Any]) -> list[str]:
    return [address["ip"] for address in pod["status"]["podIPs"]]


def _pod(node: Node, role: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{role}-{node.name}", "namespace": "default", "labels": {"app": role}},
        "spec": {
            "nodeName": node.name,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "pause", "image": AGNHOST, "args": ["pause"]}],
        },
    }


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "called", "namespace": "default"},
        "spec": {
            "type": "NodePort",
            "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {"app": "backend"},
            "ports": [{"port": PORT, "targetPort": TARGET_PORT, "nodePort": NODE_PORT}],
        },
    }
