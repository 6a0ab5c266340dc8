"""A world for kernel tests: node n1 with pods, the network around it, echo servers, clients, a proxy, in short words.

    world.serve("10.42.1.10:8080", "10.42.1.11:53/udp", "[fd42:1::10]:8080")
    world.send("pod 10.42.1.100", "10.96.0.10:80", count=50)
    world.stream("host", "10.96.0.10:80")

Pods come into being when they are first named: 10.42.1.x and fd42:1::x on n1, all other addresses on other nodes.
Origins are `pod ADDRESS`, `host` (n1 itself), `outside` and `outside ADDRESS`. `close()` leaves nothing behind.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar

from kbpf.demo.client import Client, Sessions, Stream
from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.exchange import Answer, Protocol, Request
from kbpf.demo.node import Network, Node, Pod
from kbpf.demo.patience import patient
from kbpf.demo.proxy import Proxy
from kbpf.demo.remains import remove
from kbpf.errors import KbpfError
from tests.conftest import RUN
from tests.kernel.traces import traces

CLUSTER_RANGES = "10.42.0.0/16,fd42::/16"
SERVICE_RANGES = ("10.96.0.0/16", "fd96::/108")
EXTERNAL_RANGES = ("203.0.113.0/24", "2001:db8:113::/64")


_numbers = itertools.count()

Closable = TypeVar("Closable", EchoServer, Sessions, Stream)


class World:
    """Everything named after `tag`. Build with `create()`; files of the proxies go to `directory`."""

    def __init__(self, tag: str, directory: Path) -> None:
        self.tag = tag
        self.directory = directory
        self.network = Network(tag)
        self.node = Node(self.network)
        self._pods: dict[str, Pod] = {}
        self._running = ExitStack()
        self._proxies = itertools.count()

    def create(self) -> None:
        self.network.create()
        self.node.create()
        for prefix in SERVICE_RANGES + EXTERNAL_RANGES:
            self.network.route(prefix, self.node)

    def close(self) -> None:
        try:
            self._running.close()
            left = traces(self.node)
            assert not left, f"kbpf cleanup left traces: {left}"
        finally:
            remove(self.tag)

    # -- who is there ------------------------------------------------------------------------------------------------

    def pod(self, *addresses: str) -> Pod:
        """The pod with the first address; it is made, with all these addresses, when it does not exist yet."""
        if addresses[0] not in self._pods:
            is_local = any(ip_address(addresses[0]) in ip_network(prefix) for prefix in self.node.pod_ranges)
            pod = self.node.add_pod(*addresses) if is_local else self.network.add_pod(*addresses)
            self._pods.update(dict.fromkeys(addresses, pod))
        return self._pods[addresses[0]]

    def serve(self, *backends: str) -> EchoServer:
        """Echo servers in pods or on n1, one process for all of them; closed at the end, or by the test."""
        listeners = []
        for backend in backends:
            address, port, protocol = destination(backend)
            place = self.node.host if address in self.node.addresses else self.pod(address).place
            listeners.append(Listener(place, address, port, protocol))
        return self._keep(EchoServer(listeners))

    def client(self, origin: str) -> Client:
        kind, _, address = origin.partition(" ")
        match kind:
            case "pod":
                return Client(self.pod(address).place)
            case "host":
                return Client(self.node.host)
            case "outside":
                return Client(self.network.place, address or None)
        raise ValueError(f"no such origin: {origin}")

    # -- what they do ------------------------------------------------------------------------------------------------

    def send(self, origin: str, to: str, **how: Any) -> list[Answer]:
        """Requests and their answers; `how` is any field of Request."""
        return self.client(origin).send(request(to, **how))

    def sessions(self, origin: str, to: str, **how: Any) -> Sessions:
        return self._keep(self.client(origin).sessions(request(to, **how)))

    def stream(self, origin: str, to: str, pause_s: float = 0.001, **how: Any) -> Stream:
        return self._keep(self.client(origin).stream(request(to, pause_s=pause_s, **how)))

    def proxy(self, manifests: Path | None, *options: str) -> Proxy:
        """A started, healthy kbpf on n1. At the end it is ended and its traces in the kernel are removed.

        Without manifests, `options` name an API server.
        """
        log = self.directory / f"{self.tag}-kbpf{next(self._proxies)}.log"
        proxy = Proxy(self.node, manifests, log, "--cluster-cidr", CLUSTER_RANGES, *options)
        proxy.start()
        try:
            proxy.wait_until_healthy()
        except KbpfError:
            with suppress(KbpfError):
                proxy.kill()
                proxy.cleanup()
            raise
        self._running.callback(end, proxy)
        return proxy

    def _keep(self, closable: Closable) -> Closable:
        self._running.callback(closable.close)
        return closable


@contextmanager
def standing_world(directory: Path) -> Iterator[World]:
    """A world of its own that is gone afterwards."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    world = World(f"{RUN}{worker}_{next(_numbers)}", directory)
    try:
        world.create()
        yield world
    finally:
        world.close()


def end(proxy: Proxy) -> None:
    """As an operator does it: SIGTERM, then `kbpf cleanup`."""
    assert proxy.terminate() == 0, proxy.last_words()
    proxy.cleanup()


def destination(text: str) -> tuple[str, int, Protocol]:
    """`10.96.0.10:80`, `[fd96::10]:53/udp` → address, port, protocol."""
    endpoint, _, protocol = text.partition("/")
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port), "udp" if protocol == "udp" else "tcp"


def request(to: str, **how: Any) -> Request:
    address, port, protocol = destination(to)
    return Request(address, port, protocol, **how)


def backends(answers: list[Answer]) -> set[str | None]:
    """Who answered; None stands for failures."""
    return {answer.backend for answer in answers}


def eventually(holds: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until something that happens in another process has happened."""
    deadline = time.monotonic() + patient(timeout_s)
    while not holds():
        assert time.monotonic() < deadline, f"not so after {patient(timeout_s)} s"
        time.sleep(0.02)
