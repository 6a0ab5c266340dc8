"""From a Service object to its service ports, per family: what is proxied at all, and every field's rule.

Pure. Whatever is wrong in the object comes back as Problems; the rest of the object, and every other Service, goes on.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from kbpf.model.address import Address, Family, family_of, parse_address, parse_cidr
from kbpf.model.names import Protocol, ServiceName, ServicePortName
from kbpf.model.objects import DATAPATH_ANNOTATION, SERVICE_PROXY_NAME_LABEL, Service, ServicePortSpec, ServiceSpec
from kbpf.model.problem import Problem, shown
from kbpf.model.service_port import ServicePort

DEFAULT_AFFINITY_TIMEOUT_S = 10800
MAX_AFFINITY_TIMEOUT_S = 86400
UNSPECIFIED = frozenset({"0.0.0.0", "::"})  # noqa: S104  (nothing binds to it)
PORT_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,61}[a-zA-Z0-9])?")
"""Wider than the API's rule (a DNS label), narrower than anything that could end a quoted string."""

Parsed = TypeVar("Parsed")


class ServiceReader:
    """Reads one Service; collects its problems on the way."""

    def __init__(self, name: ServiceName, service: Service) -> None:
        self.name = name
        self.service = service
        self.spec = service.spec or ServiceSpec()
        self.problems: list[Problem] = []

    def service_ports(self) -> tuple[ServicePort, ...]:
        if not self._is_proxied():
            return ()
        cluster_ips = self._cluster_ips()
        ports: dict[ServicePortName, int] = {}
        for index, spec in enumerate(self.spec.ports or ()):
            name = self._port_name(index, spec, ports)
            if name is not None:
                ports[name] = index
        return tuple(
            self._service_port(name, index, family, cluster_ip)
            for family, cluster_ip in cluster_ips.items()
            for name, index in ports.items()
        )

    def _is_proxied(self) -> bool:
        labels = self.service.metadata.labels or {}
        if SERVICE_PROXY_NAME_LABEL in labels or self.spec.type == "ExternalName":
            return False
        return self.spec.cluster_ip not in (None, "", "None")

    def _cluster_ips(self) -> dict[Family, Address]:
        """At most one ClusterIP a family: by `ipFamilies` where given, else by the address itself."""
        found: dict[Family, Address] = {}
        families = self.spec.ip_families or []
        texts = (self.spec.cluster_ips or []) if families else [self.spec.cluster_ip or ""]
        if families and not texts:
            texts = [self.spec.cluster_ip or ""]
        for index, text in enumerate(texts[: len(families)] if families else texts):
            field = f"spec.clusterIPs[{index}]" if families else "spec.clusterIP"
            address = self._parse(field, text, frontend_address, "no ClusterIP of this family")
            if address is None:
                continue
            family = family_of(address)
            if families and families[index] != family.value:
                self._problem(field, text, f"is not an {shown(families[index])} address, no ClusterIP of this family")
            else:
                found.setdefault(family, address)
        return found

    def _port_name(
        self, index: int, spec: ServicePortSpec, seen: Collection[ServicePortName]
    ) -> ServicePortName | None:
        field = f"spec.ports[{index}]"
        try:
            protocol = Protocol(spec.protocol or "TCP")
        except ValueError:
            self._problem(f"{field}.protocol", spec.protocol, "is not TCP, UDP or SCTP, port skipped")
            return None
        if spec.name and not PORT_NAME.fullmatch(spec.name):
            self._problem(f"{field}.name", spec.name, "is not a port name, port skipped")
            return None
        if not is_port(spec.port):
            self._problem(f"{field}.port", spec.port, "is not a port number (1-65535), port skipped")
            return None
        name = ServicePortName(self.name, spec.name or "", protocol)
        if name in seen:
            self._problem(f"{field}.name", spec.name or "", "same name and protocol as an earlier port, port skipped")
            return None
        return name

    def _service_port(self, name: ServicePortName, index: int, family: Family, cluster_ip: Address) -> ServicePort:
        spec = (self.spec.ports or ())[index]
        external_ips = self._external_ips(family)
        external_policy_local = self._external_policy_local(external_ips)
        return ServicePort(
            name=name,
            family=family,
            cluster_ip=cluster_ip,
            port=spec.port or 0,
            node_port=self._optional_port(f"spec.ports[{index}].nodePort", spec.node_port),
            external_ips=external_ips,
            load_balancer_ips=self._load_balancer_ips(family),
            source_ranges=self._source_ranges(family),
            affinity_timeout_s=self._affinity_timeout_s(),
            external_policy_local=external_policy_local,
            internal_policy_local=self.spec.internal_traffic_policy == "Local",
            health_check_node_port=self._health_check_node_port(external_policy_local),
            wants_rules=self._wants_rules(),
        )

    def _wants_rules(self) -> bool:
        value = (self.service.metadata.annotations or {}).get(DATAPATH_ANNOTATION, "auto")
        if value not in ("auto", "iptables"):
            self._problem(f"metadata.annotations[{DATAPATH_ANNOTATION}]", value, "is not auto or iptables, ignored")
        return value == "iptables"

    def _external_ips(self, family: Family) -> tuple[Address, ...]:
        return self._addresses_of(
            family, ((f"spec.externalIPs[{index}]", text) for index, text in enumerate(self.spec.external_ips or ()))
        )

    def _load_balancer_ips(self, family: Family) -> tuple[Address, ...]:
        status = self.service.status
        ingress = (status.load_balancer.ingress if status and status.load_balancer else None) or ()
        return self._addresses_of(
            family,
            (
                (f"status.loadBalancer.ingress[{index}].ip", entry.ip)
                for index, entry in enumerate(ingress)
                if entry.ip and entry.ip_mode in (None, "VIP")
            ),
        )

    def _source_ranges(self, family: Family) -> tuple[str, ...]:
        """Canonical ranges of this family; a zero-length prefix of it cancels all filtering."""
        ranges: dict[str, None] = {}
        for index, text in enumerate(self.spec.load_balancer_source_ranges or ()):
            field = f"spec.loadBalancerSourceRanges[{index}]"
            parsed = self._parse(field, (text or "").strip(), parse_cidr, "range skipped")
            if parsed is not None and parsed[0] is family:
                ranges[parsed[1]] = None
        return () if any(cidr.endswith("/0") for cidr in ranges) else tuple(ranges)

    def _affinity_timeout_s(self) -> int:
        if self.spec.session_affinity != "ClientIP":
            return 0
        config = self.spec.session_affinity_config
        timeout_s = config.client_ip.timeout_seconds if config and config.client_ip else None
        if timeout_s is None:
            return DEFAULT_AFFINITY_TIMEOUT_S
        if 1 <= timeout_s <= MAX_AFFINITY_TIMEOUT_S:
            return timeout_s
        self._problem(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            timeout_s,
            f"is not within 1-{MAX_AFFINITY_TIMEOUT_S}, {DEFAULT_AFFINITY_TIMEOUT_S} used",
        )
        return DEFAULT_AFFINITY_TIMEOUT_S

    def _external_policy_local(self, external_ips: tuple[Address, ...]) -> bool:
        return self.spec.external_traffic_policy == "Local" and (
            self.spec.type in ("LoadBalancer", "NodePort") or bool(external_ips)
        )

    def _health_check_node_port(self, external_policy_local: bool) -> int:
        if self.spec.type != "LoadBalancer" or not external_policy_local:
            return 0
        port = self._optional_port("spec.healthCheckNodePort", self.spec.health_check_node_port)
        if not port:
            self._problem("spec.healthCheckNodePort", self.spec.health_check_node_port, "missing, no health check port")
        return port

    def _optional_port(self, field: str, port: int | None) -> int:
        if not port:
            return 0
        if is_port(port):
            return port
        self._problem(field, port, "is not a port number (1-65535), ignored")
        return 0

    def _addresses_of(self, family: Family, texts: Iterable[tuple[str, str]]) -> tuple[Address, ...]:
        addresses: dict[Address, None] = {}
        for field, text in texts:
            address = self._parse(field, text, frontend_address, "address skipped")
            if address is not None and family_of(address) is family:
                addresses[address] = None
        return tuple(addresses)

    def _parse(self, field: str, text: str, parse: Callable[[str], Parsed], action: str) -> Parsed | None:
        try:
            return parse(text or "")
        except ValueError as error:
            self._problem(field, text, f"{error}, {action}")
            return None

    def _problem(self, field: str, value: object, action: str) -> None:
        problem = Problem(f"Service {self.name}", field, shown(value), action)
        if problem not in self.problems:  # both families and all ports read the same fields
            self.problems.append(problem)


def service_ports(name: ServiceName, service: Service) -> tuple[tuple[ServicePort, ...], tuple[Problem, ...]]:
    """The service ports of a Service in both families, and what was wrong with it."""
    reader = ServiceReader(name, service)
    return reader.service_ports(), tuple(reader.problems)


def frontend_address(text: str) -> Address:
    """Raises ValueError, also for the unspecified address: as a destination it would mean any."""
    address = parse_address(text)
    if address in UNSPECIFIED:
        raise ValueError("is the unspecified address")
    return address


def is_port(number: int | None) -> bool:
    return number is not None and 1 <= number <= 65535
