"""How health, metrics and the servers that answer them are put together from the configuration.

Called by `server`, which starts and stops what it is given; `publisher` feeds it.
"""

import structlog

from kbpf.clock import Clock
from kbpf.config import Config
from kbpf.configuration.document import encode
from kbpf.configuration.loading import Loaded
from kbpf.datapath.ebpf.factory import hook_results
from kbpf.host.accounting import read_counters
from kbpf.host.addresses import local_addresses
from kbpf.host.conntrack import conntrack_fill
from kbpf.model.names import ServiceName
from kbpf.model.objects import Node
from kbpf.node_settings import health_check_hosts
from kbpf.observe.address_server import AddressServer
from kbpf.observe.health import HealthTracker
from kbpf.observe.healthz import health_answer
from kbpf.observe.kernel_metrics import KernelCollector, KernelReaders
from kbpf.observe.metrics import Metrics
from kbpf.observe.pages import MetricsPages, Process
from kbpf.observe.service_health import Hosts, ServiceHealthPorts
from kbpf.publisher import Publisher

log = structlog.get_logger()


class Observation:
    """Everything that is seen of one daemon."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._metrics = Metrics()
        self.health = HealthTracker(clock, timeout_s=2 * config.sync_period_s)
        self.service_health = ServiceHealthPorts(self.health, _tell)
        self.publisher = Publisher(self.health, self._metrics, self.service_health, self._hosts, clock)

    def servers(self, loaded: Loaded) -> list[AddressServer]:
        """Those that have an address."""
        config = self._config
        found = []
        if config.healthz_address:
            answer = health_answer(self.health, self._metrics.answered)
            found.append(AddressServer("health", config.healthz_address, answer, must_listen=config.must_listen))
        if config.metrics_address:
            answer = self._pages(loaded).answer
            found.append(AddressServer("metrics", config.metrics_address, answer, must_listen=config.must_listen))
        return found

    def _pages(self, loaded: Loaded) -> MetricsPages:
        readers = KernelReaders(lambda: hook_results(self._config.bpffs_root), conntrack_fill, read_counters)
        self._metrics.registry.register(KernelCollector(readers))
        process = Process(self._clock.now(), encode(loaded.document), loaded.flags)
        return MetricsPages(process, self._metrics.text, lambda: self.publisher.datapath, self._clock)

    def _hosts(self, own: Node | None) -> Hosts:
        return health_check_hosts(self._config, own, local_addresses)


def _tell(service: ServiceName, port: int, reason: str) -> None:
    log.warning(f"{service}: health check node port {port} cannot be opened, trying again with each sync: {reason}")
