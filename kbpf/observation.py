"""How health, metrics and the servers that answer them are put together from the configuration.

Called by `server`, which starts and stops what it is given; `publisher` feeds it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbpf.clock import Clock
from kbpf.config import Config, ListenAddress
from kbpf.configuration.document import encode
from kbpf.configuration.loading import Loaded
from kbpf.errors import KbpfError
from kbpf.host.accounting import read_counters
from kbpf.host.addresses import local_addresses
from kbpf.host.conntrack import conntrack_state
from kbpf.model.names import ServiceName
from kbpf.model.objects import Node
from kbpf.model.problem import Problem
from kbpf.node_settings import health_check_hosts
from kbpf.observe import notices
from kbpf.observe.address_server import AddressServer
from kbpf.observe.connection_metrics import ConnectionCollector
from kbpf.observe.debug_pages import DEBUG_PAGES
from kbpf.observe.events import Events, LimitedEvents
from kbpf.observe.health import HealthTracker
from kbpf.observe.healthz import health_answer
from kbpf.observe.http import Answer
from kbpf.observe.kernel_metrics import KernelCollector, KernelReaders
from kbpf.observe.metrics import Metrics
from kbpf.observe.pages import MetricsPages, Process
from kbpf.observe.service_health import Hosts, ServiceHealthPorts
from kbpf.observe.staleness import StalenessCollector
from kbpf.publisher import Publisher

if TYPE_CHECKING:
    from kbpf.datapath.ebpf.factory import CountersName

log = logging.getLogger(__name__)


class Observation:
    """Everything that is seen of one daemon."""

    def __init__(self, config: Config, events: Events, metrics: Metrics, clock: Clock) -> None:
        """`events` carries them to the cluster, or to the log."""
        self._config, self._clock = config, clock
        self._metrics = metrics
        self._events = LimitedEvents(events, clock)
        self.health = HealthTracker(clock, timeout_s=2 * config.sync_period_s)
        self.service_health = ServiceHealthPorts(self.health, self._health_port_taken)
        self.publisher = Publisher(self.health, self._metrics, self.service_health, self._hosts, self.fell_back, clock)

    def watch_staleness(self, silences: Callable[[], Mapping[str, float]]) -> None:
        """`silences`: the seconds since the source last heard of each resource."""
        self._metrics.registry.register(StalenessCollector(silences, self.health.waiting_s))

    def servers(self, loaded: Loaded) -> list[AddressServer]:
        """Those that have an address."""
        config = self._config
        found = []
        if config.healthz_address:
            answer = health_answer(self.health, self._metrics.answered)
            found.append(self._server("health", config.healthz_address, answer))
        if config.metrics_address:
            answer = self._pages(loaded).answer
            found.append(self._server("metrics", config.metrics_address, answer))
        return found

    def starting(self) -> None:
        self._events.emit(notices.starting(self._config.node_name))

    def fell_back(self, reason: str) -> None:
        self._events.emit(notices.fell_back(self._config.node_name, reason))

    def conntrack_read_only(self, words: str) -> None:
        self._events.emit(notices.conntrack_read_only(self._config.node_name, words))

    def problem(self, found: Problem) -> None:
        """Something is wrong with an object, for the first time."""
        notice = notices.problem(self._config.node_name, found)
        if notice:
            self._events.emit(notice)

    def _server(self, name: str, address: ListenAddress, answer: Answer) -> AddressServer:
        def failed(reason: str) -> None:
            self._events.emit(notices.address_taken(self._config.node_name, name, reason))

        return AddressServer(name, address, answer, must_listen=self._config.must_listen, failed=failed)

    def _health_port_taken(self, service: ServiceName, port: int, reason: str) -> None:
        log.warning(f"{service}: health check node port {port} cannot be opened, trying with each sync: {reason}")
        self._events.emit(notices.health_port_taken(self._config.node_name, service, port, reason))

    def _pages(self, loaded: Loaded) -> MetricsPages:
        readers = KernelReaders(
            lambda: self._results("stats"), lambda: self._results("packet_stats"), conntrack_state, read_counters
        )
        self._metrics.registry.register(KernelCollector(readers))
        if self._config.connection_series:
            collector = ConnectionCollector(self._connections, self._config.connection_series)
            self._metrics.registry.register(collector)
        process = Process(self._clock.now(), encode(loaded.document), loaded.flags)
        debug = DEBUG_PAGES if loaded.document.enable_profiling else {}
        own = self.publisher
        return MetricsPages(process, self._metrics.text, lambda: own.datapath, self._clock, own.status, debug)

    def _results(self, counters: "CountersName") -> dict[str, int]:
        if not self._config.bpffs_root.exists():
            return {}
        from kbpf.datapath.ebpf.factory import results  # only now, as in `composition`

        return results(self._config.bpffs_root, counters)

    def _connections(self) -> Mapping[tuple[str, str], int]:
        if not self._config.bpffs_root.exists():
            return {}
        from kbpf.datapath.ebpf.choices import read_connections

        try:
            return {(each.service, each.backend): n for each, n in read_connections(self._config.bpffs_root).items()}
        except KbpfError as error:  # pins that are being replaced, or were taken away
            log.debug(f"connections cannot be counted just now: {error}")
            return {}

    def _hosts(self, own: Node | None) -> Hosts:
        return health_check_hosts(self._config, own, local_addresses)
