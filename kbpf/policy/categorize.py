"""Which endpoints a service port may use on this node: the cluster list and the local list.

The rules are kube-proxy's: topology hints (KEP-2433, KEP-3015, KEP-4444), terminating endpoints (KEP-1669, KEP-1672)
and internal traffic policy (KEP-2086). Pure; called by `resolve`.
"""

from collections.abc import Callable
from typing import NamedTuple

from kbpf.model.endpoint import Endpoint
from kbpf.model.node import NodeTopology
from kbpf.model.service_port import ServicePort

Endpoints = tuple[Endpoint, ...]


class Categories(NamedTuple):
    cluster: Endpoints
    local: Endpoints
    has_any: bool


def categorize(endpoints: Endpoints, port: ServicePort, node: NodeTopology) -> Categories:
    """The two lists, in the order of `endpoints`, each empty when the port's policies never use it.

    `has_any` is true when some endpoint somewhere could serve, even if no list of this node may use it: that is the
    difference between "no endpoints" (reject) and "no local endpoints" (drop).
    """
    ready = tuple([endpoint for endpoint in endpoints if endpoint.ready])
    draining = tuple([endpoint for endpoint in endpoints if endpoint.terminating and endpoint.serving])
    cluster: Endpoints = ()
    local: Endpoints = ()
    if port.uses_cluster_endpoints:
        near = topology_filter(ready, node)
        cluster = (tuple(filter(near, ready)) if near else ready) or draining
    if port.uses_local_endpoints:
        # Falls back on its own, even when ready endpoints exist elsewhere; topology never filters it.
        local = _local(ready) or _local(draining)
    return Categories(cluster, local, bool(cluster) or (port.uses_local_endpoints and bool(ready or draining)))


def topology_filter(ready: Endpoints, node: NodeTopology) -> Callable[[Endpoint], bool] | None:
    """PreferSameNode, else PreferSameZone, else everything (None).

    A kind of hint counts only if every ready endpoint carries it and at least one names this node (zone): the
    controller removes hints when a zone would be overloaded, and a half-updated set must not black-hole anyone.
    """
    if all(endpoint.node_hints for endpoint in ready) and any(node.name in endpoint.node_hints for endpoint in ready):
        return lambda endpoint: node.name in endpoint.node_hints
    if (
        node.zone
        and all(endpoint.zone_hints for endpoint in ready)
        and any(node.zone in endpoint.zone_hints for endpoint in ready)
    ):
        return lambda endpoint: node.zone in endpoint.zone_hints
    return None


def _local(endpoints: Endpoints) -> Endpoints:
    return tuple(endpoint for endpoint in endpoints if endpoint.is_local)
