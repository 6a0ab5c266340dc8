"""Health check node ports: for each Service that has one, a port that says whether this node has endpoints for it.

Load balancers of Services with the policy Local send traffic to nodes that answer 200. The counts are handed over after
a sync, never before: no node calls itself ready before its rules are.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from kbpf.config import ListenAddress
from kbpf.model.address import Address, Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable
from kbpf.observe.health import HealthTracker
from kbpf.observe.http import HttpThread, Listener, Response

log = logging.getLogger(__name__)


class PortKey(NamedTuple):
    """Each family has listeners of its own, and its own count."""

    service: ServiceName
    family: Family
    port: int
    host: str


class LocalEndpoints(msgspec.Struct, frozen=True):
    """How many addresses of ready endpoints of a Service this node has, in one family."""

    port: int
    count: int


Hosts = Mapping[Family, Iterable[str]]
Failed = Callable[[ServiceName, int, str], None]
"""A port could not be opened: Service, port, reason."""


class ServiceHealthPorts:
    """Owned by the control thread; the answers are given in a thread of their own.

    `failed` is told of a port that cannot be opened, once, until the reason changes.
    """

    def __init__(self, health: HealthTracker, failed: Failed) -> None:
        self._health = health
        self._failed = failed
        self._http: HttpThread | None = None
        self._counts: dict[tuple[ServiceName, Family], LocalEndpoints] = {}
        self._listeners: dict[PortKey, Listener] = {}
        self._failures: dict[PortKey, str] = {}

    def stop(self) -> None:
        if self._http is not None:
            self._http.stop()

    def synced(self, services: Iterable[ServiceName], table: ServiceTable, hosts: Callable[[], Hosts]) -> None:
        """The kernel holds what `table` says of `services`, the only ones that may differ from before.

        `hosts` says on which addresses of a family the ports are open; it is asked only when there are any.
        """
        for service in services:
            found = local_endpoints(service, table)
            if not found and not self._counts:
                continue  # nearly no Service has such a port
            for family in Family:
                if family in found:
                    self._counts[service, family] = found[family]
                else:
                    self._counts.pop((service, family), None)
        if self._counts or self._listeners:
            self._open_and_close(set(self._wanted(hosts())))

    def _open_and_close(self, wanted: set[PortKey]) -> None:
        for key in self._listeners.keys() - wanted:
            self._listeners.pop(key).close()
        self._failures = {key: reason for key, reason in self._failures.items() if key in wanted}
        for key in sorted(wanted - self._listeners.keys(), key=str):
            self._open(key)

    def _wanted(self, hosts: Hosts) -> Iterator[PortKey]:
        for (service, family), local in self._counts.items():
            yield from (PortKey(service, family, local.port, host) for host in hosts.get(family, ()))

    def _open(self, key: PortKey) -> None:
        self._http = self._http or HttpThread("service-health")
        address = ListenAddress(key.host, key.port)
        try:
            self._listeners[key] = self._http.listen(address, lambda path: self._answer(key), one_family=True)
        except OSError as error:
            reason = error.strerror or str(error)
            if self._failures.get(key) != reason:
                self._failures[key] = reason
                self._failed(key.service, key.port, f"{address}: {reason}")
            return
        self._failures.pop(key, None)

    def _answer(self, key: PortKey) -> Response:
        """Any path, any method."""
        local = self._counts.get((key.service, key.family))
        if local is None:  # a request that raced with the removal
            return Response(HTTPStatus.OK, b"")
        is_healthy = self._health.snapshot().is_healthy
        is_good = local.count > 0 and is_healthy
        document = {
            "service": {"namespace": key.service.namespace, "name": key.service.name},
            "localEndpoints": local.count,
            "serviceProxyHealthy": is_healthy,
        }
        return Response(
            HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE,
            tab_indented(msgspec.json.encode(document)),
            headers=(("X-Load-Balancing-Endpoint-Weight", str(local.count)),),
        )


def local_endpoints(service: ServiceName, table: ServiceTable) -> dict[Family, LocalEndpoints]:
    """By family, over all ports of the Service: an address counts once."""
    ready: dict[Family, set[Address]] = {}
    number = 0
    for port in table.ports_of(service):
        if port.health_check_node_port:
            number = port.health_check_node_port
            ready.setdefault(port.family, set()).update(port.ready_here)
    return {family: LocalEndpoints(number, len(addresses)) for family, addresses in ready.items()}


def tab_indented(document: bytes) -> bytes:
    lines = msgspec.json.format(document, indent=1).split(b"\n")
    return b"\n".join(b"\t" * (len(line) - len(line.lstrip(b" "))) + line.lstrip(b" ") for line in lines)
