"""The source behind `--kubeconfig`, `--master` and the service account of a pod: one thread for each resource.

    HttpTransport ─► Follower (one a resource, with its Reflector) ─► Lifeline ─► the control thread's queue

The thread of the own Node first waits for what the start depends on, see own_node.py. The others begin after it: they
would keep it, and with it the eBPF programs, waiting for as long as the lists of a large cluster take.
"""

import logging
import threading
from collections.abc import Callable
from random import Random
from urllib.parse import urlsplit

from kbpf.clock import Clock
from kbpf.errors import ApiFailure, RestartNeeded
from kbpf.model.events import Event, Kind, NodeChanged, SourceFailed, Synced
from kbpf.model.objects import Node
from kbpf.source.api.backoff import delay_s
from kbpf.source.api.decode import decode_page, read_object
from kbpf.source.api.follower import Follower, Wait, tell
from kbpf.source.api.lifeline import Lifeline
from kbpf.source.api.news import News
from kbpf.source.api.own_node import LOOK_EVERY_S, NodeIdentity, NodeWait
from kbpf.source.api.reflector import Reflector
from kbpf.source.api.request import page
from kbpf.source.api.resource import ENDPOINT_SLICES, SERVICES, own_node
from kbpf.source.api.transport import Transport
from kbpf.source.interface import Emit

log = logging.getLogger(__name__)

JOIN_WITHIN_S = 1.0
NODE_IS_TOLD = Synced(Kind.NODE)
NODE_FIRST_S = 0.25
"""So long the large lists wait for the Node."""


class ApiSource:
    """`url` is that of the API server, `needs_pod_ranges`: the settings follow from the pod ranges of the Node."""

    def __init__(
        self,
        transport: Transport,
        url: str,
        node_name: str,
        clock: Clock,
        random: Random | None = None,
        *,
        needs_pod_ranges: bool = False,
        wait: Wait = threading.Event.wait,
    ) -> None:
        self._transport = transport
        self._node_name = node_name
        self._clock = clock
        self._random = random or Random()
        self._wait = wait
        self._lifeline = Lifeline(urlsplit(url).hostname or "")
        self._node_wait = NodeWait(node_name, clock, needs_pod_ranges=needs_pod_ranges)
        self._node_identity = NodeIdentity(node_name, needs_pod_ranges=needs_pod_ranges)
        self._lock = threading.Lock()  # one event at a time, and the lifeline sees those of two threads
        self._stopped = threading.Event()
        self._node_is_told = threading.Event()
        self._reflectors: dict[str, Reflector] = {}
        self._followers: list[Follower] = []
        self._threads: list[threading.Thread] = []

    def start(self, emit: Emit) -> None:
        for resource in (SERVICES, ENDPOINT_SLICES, own_node(self._node_name)):
            reflector = self._reflectors[str(resource)] = Reflector(resource, self._clock, self._random)
            follower = Follower(reflector, self._transport, lambda event: self._deliver(emit, event), self._wait)
            self._followers.append(follower)
            is_node = resource.kind is Kind.NODE
            run = self._after_node_wait(follower.run, emit) if is_node else self._after_node(follower.run)
            # Daemon threads: one that is connecting cannot be interrupted.
            self._threads.append(threading.Thread(target=run, name=f"watch-{resource}", daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for follower in self._followers:
            follower.stop()
        for thread in self._threads:
            thread.join(JOIN_WITHIN_S)

    def silences(self) -> dict[str, float]:
        """The seconds since the server last spoke of each resource. Any thread may ask."""
        return {name: reflector.silence_s for name, reflector in [*self._reflectors.items()]}

    def _deliver(self, emit: Emit, event: Event) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            for passed in self._lifeline.pass_on(event):
                emit(passed)
            if news := self._lifeline.take_news():
                log.warning(news)
            if event == NODE_IS_TOLD:
                self._node_identity.settle()
                self._node_is_told.set()
            if reason := self._reason_to_restart(event):
                emit(SourceFailed(RestartNeeded(f"{reason}: ending, to be started again with the new state")))

    def _reason_to_restart(self, event: Event) -> str:
        return self._node_identity.reason_to_restart(event.node) if isinstance(event, NodeChanged) else ""

    # -- the own Node, before its list ------------------------------------------------------------------------------

    def _after_node(self, run: Callable[[], None]) -> Callable[[], None]:
        def wait_and_run() -> None:
            self._node_is_told.wait(NODE_FIRST_S)
            run()

        return wait_and_run

    def _after_node_wait(self, run: Callable[[], None], emit: Emit) -> Callable[[], None]:
        def wait_and_run() -> None:
            try:
                self._wait_for_node()
            except RestartNeeded as reason:
                emit(SourceFailed(reason))
            else:
                run()

        return wait_and_run

    def _wait_for_node(self) -> None:
        """Ask once a second until the Node is there with all that is needed, or the time for it is over."""
        news = News("nodes", self._clock)
        failures = 0
        while not self._stopped.is_set():
            try:
                node = self._ask_for_node()
            except ApiFailure as failure:
                failures += 1
                news.outage(str(failure))
                pause_s = delay_s(failures, self._random, failure.retry_after_s)
            else:
                failures = 0
                news.recovered()
                if self._node_wait.is_over(node):
                    if regret := self._node_wait.regret(node):
                        log.warning(regret)
                    return
                pause_s = LOOK_EVERY_S
            tell(news.take())
            self._wait(self._stopped, pause_s)

    def _ask_for_node(self) -> Node | None:
        resource = own_node(self._node_name)
        with self._transport.open(page(resource)) as answer:
            for raw in decode_page(answer.read()).items or ():
                now = read_object(resource, raw).now
                if isinstance(now, Node):
                    return now
        return None
