"""From what the cluster says to what this node does, for the services that changed. Pure.

Called by the proxier once per sync; its result goes into the ServiceTable, which the datapaths translate.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from kbpf.model import names
from kbpf.model.address import Address
from kbpf.model.endpoint import Endpoint, EndpointsKey
from kbpf.model.names import ServiceName
from kbpf.model.node import NodeTopology
from kbpf.model.service_port import ServicePort
from kbpf.model.table import Backend, Frontend, FrontendKind, Outcome, ResolvedPort, Target, View
from kbpf.policy.categorize import categorize


class Cluster(Protocol):
    """What the cluster says now, by Service; the trackers are one."""

    def service_ports(self, service: ServiceName) -> tuple[ServicePort, ...]: ...

    def endpoints(self, service: ServiceName) -> Mapping[EndpointsKey, tuple[Endpoint, ...]]: ...


def resolve(
    services: Iterable[ServiceName], cluster: Cluster, node: NodeTopology
) -> dict[ServiceName, tuple[ResolvedPort, ...]]:
    """The decision for each of `services`; an empty tuple means that the Service is not proxied (any more)."""
    return {service: resolve_service(service, cluster, node) for service in services}


def resolve_service(service: ServiceName, cluster: Cluster, node: NodeTopology) -> tuple[ResolvedPort, ...]:
    ports = cluster.service_ports(service)
    if not ports:
        return ()
    endpoints = cluster.endpoints(service)
    return tuple(
        resolve_port(port, endpoints.get(EndpointsKey(port.family, port.name.port, port.name.protocol), ()), node)
        for port in ports
    )


def resolve_port(port: ServicePort, endpoints: tuple[Endpoint, ...], node: NodeTopology) -> ResolvedPort:
    lists = categorize(endpoints, port, node)
    return ResolvedPort(
        name=port.name,
        family=port.family,
        frontends=frontends(port),
        cluster=tuple(map(_backend, lists.cluster)),
        local=tuple(map(_backend, lists.local)),
        internal=_target(port.internal_policy_local, lists.has_any, bool(lists.local)),
        external=_target(port.external_policy_local, lists.has_any, bool(lists.local)),
        has_any_endpoint=lists.has_any,
        affinity_timeout_s=port.affinity_timeout_s,
        source_ranges=port.source_ranges,
        health_check_node_port=port.health_check_node_port,
        ready_here=_ready_here(endpoints) if port.health_check_node_port else frozenset(),
        known_endpoints=len(endpoints),
        wants_rules=port.wants_rules,
        kept=_kept(endpoints, lists.cluster) if port.name.protocol is names.Protocol.UDP else (),
    )


def frontends(port: ServicePort) -> tuple[Frontend, ...]:
    """ClusterIP first, then external IPs, load balancer IPs and the node port: the order in which rules are written.

    An address that is named twice is one frontend, of the first kind: kube-proxy's second rule for it is never reached.
    """
    found = {port.cluster_ip: Frontend(FrontendKind.CLUSTER_IP, port.cluster_ip, port.port)}
    for address in port.external_ips:
        found.setdefault(address, Frontend(FrontendKind.EXTERNAL_IP, address, port.port))
    for address in port.load_balancer_ips:
        found.setdefault(address, Frontend(FrontendKind.LOAD_BALANCER_IP, address, port.port))
    node_port = (Frontend(FrontendKind.NODE_PORT, None, port.node_port),) if port.node_port else ()
    return (*found.values(), *node_port)


def _target(is_local_policy: bool, has_any: bool, has_local: bool) -> Target:
    view = View.LOCAL if is_local_policy else View.CLUSTER
    if not has_any:
        return Target(view, Outcome.REJECT)
    if is_local_policy and not has_local:
        return Target(view, Outcome.DROP)
    return Target(view, Outcome.FORWARD)


def _ready_here(endpoints: tuple[Endpoint, ...]) -> frozenset[Address]:
    """Draining endpoints are not among them: load balancers must leave, even while traffic falls back to them."""
    return frozenset(endpoint.address for endpoint in endpoints if endpoint.is_local and endpoint.ready)


def _kept(endpoints: tuple[Endpoint, ...], listed: tuple[Endpoint, ...]) -> tuple[Backend, ...]:
    """Those whose conntrack entries kube-proxy spares, whatever policies and hints make of them."""
    there = frozenset(listed)
    return tuple(_backend(endpoint) for endpoint in endpoints if endpoint.serving and endpoint not in there)


def _backend(endpoint: Endpoint) -> Backend:
    return Backend(endpoint.address, endpoint.port, endpoint.is_local)
