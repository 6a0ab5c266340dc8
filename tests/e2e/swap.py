"""Service proxies swapped on a live cluster while connections are made all the time and others are held.

Backends and callers are real pods; what listens and calls in them is the demo's own, which counts every failure.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kbpf.demo.client import Client, Sessions, Stream
from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.exchange import Request
from kbpf.demo.place import Place
from tests.cluster.programs import ProgramFailed
from tests.e2e.cluster import Cluster
from tests.e2e.engines import KBPF_EBPF, KBPF_IPTABLES, KUBE_PROXY_IPTABLES, Engine
from tests.e2e.images import IMAGES
from tests.e2e.network import CONTROL
from tests.e2e.node import Node
from tests.e2e.progress import say

PORT, TARGET_PORT, NODE_PORT = 80, 8080, 30080
HELD = 20
PAUSE_S = 0.004
SETTLE_S = 5
"""How long calls go on after a swap before they are counted."""
# The same engine twice: it is killed and started anew.
STEPS = (
    KUBE_PROXY_IPTABLES,
    KBPF_EBPF,
    KBPF_EBPF,
    KBPF_IPTABLES,
    KBPF_IPTABLES,
    KBPF_EBPF,
    KUBE_PROXY_IPTABLES,
)


@dataclass(frozen=True, slots=True)
class Swap:
    """What one swap cost, over all callers."""

    before: str
    after: str
    seconds: float
    tried: int
    failed: int
    held: int
    lost: int
    errors: tuple[str, ...]

    @property
    def must_be_lossless(self) -> bool:
        return "kbpf" in self.after

    def line(self) -> str:
        errors = f": {', '.join(self.errors)}" if self.errors else ""
        return (
            f"{self.before} → {self.after}: {self.seconds:.1f} s; new connections tried {self.tried}, "
            f"lost {self.failed}{errors}; long ones held {self.held}, lost {self.lost}"
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Where calls come from, and which address and port they call."""

    place: Place
    address: str
    port: int

    def request(self, count: int, pause_s: float = 0.0) -> Request:
        return Request(self.address, self.port, count=count, pause_s=pause_s, timeout_s=5.0)


def swap_all(cluster: Cluster) -> list[Swap]:
    cluster.proxies.start(STEPS[0])
    with _workload(cluster) as (callers, address_count):
        say(f"{len(callers)} callers, {address_count} backends")
        return [_swap(cluster, before, after, callers) for before, after in pairwise(STEPS)]


def _swap(cluster: Cluster, before: Engine, after: Engine, callers: Sequence[Caller]) -> Swap:
    """Long connections begin before each swap, so that each proxy must keep those of the one before it."""
    with ExitStack() as running:
        streams = [_open(running, Client(c.place).stream(c.request(1, PAUSE_S))) for c in callers]
        sessions = [_open(running, Client(c.place).sessions(c.request(HELD))) for c in callers]
        _refuse_failures(streams, sessions)
        started = time.monotonic()
        _exchange(cluster, before, after)
        seconds = time.monotonic() - started
        time.sleep(SETTLE_S)
        cluster.check()
        reports = [stream.report() for stream in streams]
        held = [answer for session in sessions for answer in session.ping()]
    failures = sorted({str(f.error) for report in reports for f in report.failures})
    swap = Swap(
        before.name,
        after.name,
        seconds,
        sum(r.attempts for r in reports),
        sum(r.failed for r in reports),
        len(held),
        sum(answer.error is not None for answer in held),
        tuple(failures),
    )
    say(swap.line())
    return swap


def _exchange(cluster: Cluster, before: Engine, after: Engine) -> None:
    """kbpf takes over from what stands; before kube-proxy comes back, kbpf's programs must go."""
    if after is KUBE_PROXY_IPTABLES:
        cluster.proxies.remove()
    elif before is after:
        cluster.proxies.kill()
    else:
        cluster.proxies.stop()
    cluster.proxies.start(after)


def _refuse_failures(streams: Sequence[Stream], sessions: Sequence[Sessions]) -> None:
    """Before a swap everything works, or the figures after it would mean nothing."""
    answers = [answer for session in sessions for answer in session.opened]
    answers += [answer for stream in streams for answer in stream.wait_for(20).failures]
    errors = {str(answer.error) for answer in answers if answer.error}
    if errors:
        raise ProgramFailed(f"connections fail before anything was swapped: {sorted(errors)}")


def _open(running: ExitStack, connection: Any) -> Any:
    running.callback(connection.close)
    return connection


# -- pods ------------------------------------------------------------------------------------------------------------


@contextmanager
def _workload(cluster: Cluster) -> Iterator[tuple[list[Caller], int]]:
    """A backend and a client for each node, a Service in front of them, and who calls it from where."""
    cluster.control_plane.apply(_service(), *(_pod(node, role) for node in cluster.nodes for role in _ROLES))
    arguments = ("wait", "--for=condition=Ready", "pod", "--selector=app in (backend,client)", "--timeout=120s")
    cluster.control_plane.kubectl(*arguments)
    places = {address: place for node in cluster.nodes for address, place in pod_places(node).items()}
    pods = cluster.control_plane.get("pods", "--selector=app in (backend,client)")["items"]
    addresses = {
        role: [p["status"]["podIP"] for p in pods if p["metadata"]["labels"]["app"] == role] for role in _ROLES
    }
    cluster_ip = cluster.control_plane.get("service", "swapped")["spec"]["clusterIP"]
    listeners = [Listener(places[address], address, TARGET_PORT) for address in addresses["backend"]]
    server = EchoServer(listeners)
    try:
        callers = [Caller(places[address], cluster_ip, PORT) for address in addresses["client"]]
        for node in cluster.nodes:
            callers.append(Caller(Place(node.addresses.namespace.path, str(node.cgroup)), cluster_ip, PORT))
            callers.append(Caller(Place(CONTROL.path), node.addresses.v4, NODE_PORT))
        _wait_until_served(callers)
        yield callers, len(listeners)
    finally:
        server.close()
        cluster.control_plane.kubectl("delete", "service,pod", "--all", "--wait=false")


def _wait_until_served(callers: Sequence[Caller], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    for caller in callers:
        while error := Client(caller.place).send(caller.request(1))[0].error:
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{caller.address}:{caller.port} is not served: {error}")
            time.sleep(0.5)


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
                places.update(dict.fromkeys(_addresses(path), place))
    return places


def _addresses(namespace: str) -> list[str]:
    command = ["nsenter", f"--net={namespace}", "ip", "-oneline", "address", "show", "scope", "global"]
    return re.findall(r"inet6? (\S+)/", subprocess.run(command, capture_output=True, text=True, check=True).stdout)


_ROLES = ("backend", "client")


def _pod(node: Node, role: str) -> dict[str, Any]:
    (agnhost,) = (image.names[0] for image in IMAGES if image.file == "agnhost")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{role}-{node.name}", "namespace": "default", "labels": {"app": role}},
        "spec": {
            "nodeName": node.name,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "pause", "image": agnhost, "args": ["pause"]}],
        },
    }


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "swapped", "namespace": "default"},
        "spec": {
            "type": "NodePort",
            "selector": {"app": "backend"},
            "ports": [{"port": PORT, "targetPort": TARGET_PORT, "nodePort": NODE_PORT}],
        },
    }
