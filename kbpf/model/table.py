"""The ServiceTable: what this node must do now. Both datapaths translate it; nothing after it decides again.

`resolve` fills it service by service; its cost and the cost of reading it are those of the change, not of the cluster.
"""

from bisect import insort
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from kbpf.model.address import Address, Family
from kbpf.model.constant import Constant
from kbpf.model.names import Protocol, ServiceName, ServicePortName


class FrontendKind(Constant):
    CLUSTER_IP = "ClusterIP"
    EXTERNAL_IP = "ExternalIP"
    LOAD_BALANCER_IP = "LoadBalancerIP"
    NODE_PORT = "NodePort"


class View(Constant):
    """Which of a service port's two backend lists a frontend uses."""

    CLUSTER = "cluster"
    LOCAL = "local"


class Outcome(Constant):
    """What a frontend does with a new flow. REJECT answers with an ICMP error, DROP stays silent."""

    FORWARD = "forward"
    REJECT = "reject"
    DROP = "drop"


class FrontendKey(NamedTuple):
    """An address of None is every node-port address of this node."""

    family: Family
    address: Address | None
    port: int
    protocol: Protocol


class Frontend(NamedTuple):
    kind: FrontendKind
    address: Address | None
    port: int


class Backend(NamedTuple):
    address: Address
    port: int
    is_local: bool = False


class Target(NamedTuple):
    view: View
    outcome: Outcome


class ResolvedPort(msgspec.Struct, frozen=True, gc=False):
    """One service port in one family, decided: its frontends, its two backend lists and what each side gets.

    `internal` speaks of ClusterIP traffic, `external` of node ports, external IPs and load balancer IPs. Pods and the
    node itself use the cluster list on external frontends whatever `external.view` says, if `has_any_endpoint`.
    """

    name: ServicePortName
    family: Family
    frontends: tuple[Frontend, ...]
    cluster: tuple[Backend, ...]
    """Sorted by "ip:port" as text; the order of rules and slots."""
    local: tuple[Backend, ...]
    internal: Target
    external: Target
    has_any_endpoint: bool
    """Somewhere in the cluster there is an endpoint that could serve."""
    affinity_timeout_s: int = 0
    source_ranges: tuple[str, ...] = ()
    """Of load balancer IPs only; empty means all."""
    health_check_node_port: int = 0
    ready_here: frozenset[Address] = frozenset()
    """Addresses of ready endpoints on this node, for the answer of the health check node port, if there is one."""
    known_endpoints: int = 0
    """How many endpoints there are in the cluster, whether they could serve or not."""
    wants_rules: bool = False
    """The Service asked to be balanced by iptables alone."""
    kept: tuple[Backend, ...] = ()
    """Of UDP: endpoints beside the cluster list that serve. They get no new flow, and keep those that they have."""

    @property
    def protocol(self) -> Protocol:
        return self.name.protocol

    def backends(self, view: View) -> tuple[Backend, ...]:
        return self.cluster if view is View.CLUSTER else self.local

    def target(self, frontend: Frontend) -> Target:
        return self.internal if frontend.kind is FrontendKind.CLUSTER_IP else self.external

    def key(self, frontend: Frontend) -> FrontendKey:
        return FrontendKey(self.family, frontend.address, frontend.port, self.protocol)


class Claim(NamedTuple):
    """Of one service port to one frontend; the least of several wins."""

    reluctance: int
    service: ServiceName
    port: str
    name: ServicePortName


RELUCTANCE = {Outcome.FORWARD: 0, Outcome.DROP: 1, Outcome.REJECT: 2}


class ServiceTable:
    """Resolved ports by service, and which service port owns each frontend.

    Two Services may claim one address and port (external IPs are unowned in Kubernetes). One that has endpoints gets it
    rather than one that would drop or reject, as kube-proxy's rules have it; among equals the first by name, where
    kube-proxy leaves the choice to chance. When the owner leaves, or its endpoints do, the next one takes over.
    """

    def __init__(self) -> None:
        self._ports: dict[ServiceName, tuple[ResolvedPort, ...]] = {}
        self._claims: dict[FrontendKey, list[Claim]] = {}

    def __iter__(self) -> Iterator[ResolvedPort]:
        """All resolved ports, sorted by name, so that dumps and rule files are stable."""
        for name in sorted(self._ports):
            yield from self._ports[name]

    def __len__(self) -> int:
        return sum(map(len, self._ports.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServiceTable) and self._ports == other._ports

    @property
    def services(self) -> Collection[ServiceName]:
        return self._ports.keys()

    def ports_of(self, service: ServiceName) -> tuple[ResolvedPort, ...]:
        return self._ports.get(service, ())

    def owner(self, key: FrontendKey) -> ServicePortName | None:
        claims = self._claims.get(key)
        return claims[0].name if claims else None

    def owned_frontends(self, port: ResolvedPort) -> tuple[Frontend, ...]:
        """The frontends of `port` that no other service port has the better claim to."""
        return tuple(frontend for frontend in port.frontends if self.owner(port.key(frontend)) == port.name)

    def replace(self, service: ServiceName, ports: tuple[ResolvedPort, ...]) -> frozenset[ServiceName]:
        """Put in what `resolve` decided (nothing: the Service is gone).

        Returns the services that must be written: this one, and any that gained or lost a shared frontend by it.
        """
        affected = {service}
        before = {claim for port in self.ports_of(service) for claim in _claims_of(port)}
        after = {claim for port in ports for claim in _claims_of(port)}
        for key, claim in before - after:
            affected |= self._release(key, claim)
        for key, claim in after - before:
            affected |= self._claim(key, claim)
        if ports:
            self._ports[service] = ports
        else:
            self._ports.pop(service, None)
        return frozenset(affected)

    def _claim(self, key: FrontendKey, claim: Claim) -> set[ServiceName]:
        claims = self._claims.setdefault(key, [])
        before = claims[:1]
        insort(claims, claim)
        return {other.service for other in before + claims[:1]} if before != claims[:1] else set()

    def _release(self, key: FrontendKey, claim: Claim) -> set[ServiceName]:
        claims = self._claims[key]
        before = claims[0]
        claims.remove(claim)
        if not claims:
            del self._claims[key]
            return set()
        return {claims[0].service} if claims[0] != before else set()


def _claims_of(port: ResolvedPort) -> Iterator[tuple[FrontendKey, Claim]]:
    for frontend in port.frontends:
        reluctance = RELUCTANCE[port.target(frontend).outcome]
        yield port.key(frontend), Claim(reluctance, port.name.service, port.name.port, port.name)
