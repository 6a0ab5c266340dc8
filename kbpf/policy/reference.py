"""The reference model: what must happen to a flow, written from the Kubernetes rules and from neither datapath.

Slow and obvious on purpose. It judges the unit tests of the policy, both traces and the real kernel, and it is what
`kbpf explain` says. A flow is judged by its first packet; established flows follow their choice.
"""

import msgspec
from msgspec.structs import replace

from kbpf.model.address import Address, Family, family_of
from kbpf.model.detector import LocalDetector, in_cidr
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Origin, Verdict
from kbpf.model.table import (
    Frontend,
    FrontendKey,
    FrontendKind,
    Outcome,
    ResolvedPort,
    ServiceTable,
    Target,
    View,
)


class ReferenceNode(msgspec.Struct, frozen=True):
    """What the rules ask about the node besides the table.

    `local_addresses` are all of its own (loopback included), `node_port_addresses` those on which node ports are open.
    """

    local_addresses: frozenset[Address] = frozenset()
    node_port_addresses: frozenset[Address] = frozenset()
    node_ips: frozenset[Address] = frozenset()
    detectors: dict[Family, LocalDetector] = msgspec.field(default_factory=dict)
    masquerade_all: bool = False


def expected_verdict(table: ServiceTable, flow: Flow, node: ReferenceNode) -> Verdict:
    """The set of allowed backends, or reject, drop, pass; and whether the backend sees a node address."""
    verdict = _decide(table, flow, node)
    if flow.origin is Origin.HOST:
        return verdict
    backends = {backend.address for backend in verdict.backends}
    return replace(verdict, delivered=node.local_addresses & backends)


def _decide(table: ServiceTable, flow: Flow, node: ReferenceNode) -> Verdict:
    hit = find_frontend(table, flow, node)
    if hit is None:
        return _closed_node_port(table, flow, node)
    port, frontend = hit
    if _is_on_its_way_out(port, frontend, flow, node):
        return PASS
    if frontend.kind is FrontendKind.CLUSTER_IP:
        return _forward(port, port.internal, _masquerades_cluster_ip(flow, node))
    if frontend.kind is FrontendKind.LOAD_BALANCER_IP and not _is_source_allowed(port, flow, node):
        return DROP
    return _external(port, flow, node)


def find_frontend(table: ServiceTable, flow: Flow, node: ReferenceNode) -> tuple[ResolvedPort, Frontend] | None:
    """An exact address first, then, on an address where node ports are open, the node port."""
    family = family_of(flow.destination)
    hit = _find(table, FrontendKey(family, flow.destination, flow.port, flow.protocol))
    if hit is None and flow.destination in node.node_port_addresses:
        hit = _find(table, FrontendKey(family, None, flow.port, flow.protocol))
    return hit


def _closed_node_port(table: ServiceTable, flow: Flow, node: ReferenceNode) -> Verdict:
    """Node ports without backends are refused on every address of the node, open or not, as kube-proxy does it."""
    hit = None
    if flow.destination in node.local_addresses:
        hit = _find(table, FrontendKey(family_of(flow.destination), None, flow.port, flow.protocol))
    if hit is None or hit[0].external.outcome is Outcome.FORWARD:
        return PASS
    return _forward(hit[0], hit[0].external, masquerade=False)


def _is_on_its_way_out(port: ResolvedPort, frontend: Frontend, flow: Flow, node: ReferenceNode) -> bool:
    """An external address without endpoints is refused to packets that arrive, not to the node's own that leave it."""
    return (
        flow.origin is Origin.HOST
        and frontend.kind in (FrontendKind.EXTERNAL_IP, FrontendKind.LOAD_BALANCER_IP)
        and not port.has_any_endpoint
        and flow.destination not in node.local_addresses
    )


def _find(table: ServiceTable, key: FrontendKey) -> tuple[ResolvedPort, Frontend] | None:
    owner = table.owner(key)
    if owner is None:
        return None
    for port in table.ports_of(owner.service):
        if port.name == owner and port.family is key.family:
            for frontend in port.frontends:
                if port.key(frontend) == key:
                    return port, frontend
    return None


def _masquerades_cluster_ip(flow: Flow, node: ReferenceNode) -> bool:
    detector = node.detectors.get(family_of(flow.destination))
    return node.masquerade_all or (detector is not None and not detector.is_local(flow))


def _is_source_allowed(port: ResolvedPort, flow: Flow, node: ReferenceNode) -> bool:
    """Ranges filter pods and host processes too; a node inside them may also use the address as its own source."""
    if not port.source_ranges or not port.has_any_endpoint:
        return True
    if any(in_cidr(flow.source, cidr) for cidr in port.source_ranges):
        return True
    node_is_inside = any(in_cidr(address, cidr) for address in node.node_ips for cidr in port.source_ranges)
    return node_is_inside and flow.source == flow.destination


def _external(port: ResolvedPort, flow: Flow, node: ReferenceNode) -> Verdict:
    if port.external.view is View.CLUSTER:
        return _forward(port, port.external, masquerade=True)
    if port.has_any_endpoint:
        # The short circuit: pods and the node itself are "inside", whatever externalTrafficPolicy says.
        detector = node.detectors.get(family_of(flow.destination))
        cluster = Target(View.CLUSTER, Outcome.FORWARD if port.cluster else port.external.outcome)
        if detector is not None and detector.is_local(flow):
            return _forward(port, cluster, masquerade=False)
        if flow.origin is Origin.HOST or flow.source in node.local_addresses:
            return _forward(port, cluster, masquerade=True)
    return _forward(port, port.external, masquerade=False)


def _forward(port: ResolvedPort, target: Target, masquerade: bool) -> Verdict:
    if target.outcome is Outcome.REJECT:
        return REJECT
    if target.outcome is Outcome.DROP:
        return DROP
    return Verdict(Action.FORWARD, frozenset(port.backends(target.view)), masquerade)
