"""Which UDP flows are stale. Pure state and decision; `udp_cleanup` feeds it and acts on its answer.

kube-proxy's rule: a flow to a frontend whose answers do not come from a serving endpoint of its service port must be
forgotten. That covers the endpoint that left, the flow that began while there was no endpoint and was never translated,
and the frontend that is no longer any Service's. Flows are those that conntrack knows, and connected sockets that eBPF
has translated. Other flows, TCP and SCTP among them, are nobody's business here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kbpf.host.conntrack import UdpEntry, network_order
from kbpf.model.address import Family
from kbpf.model.endpoint import Endpoint, EndpointsKey
from kbpf.model.names import Protocol, ServiceName
from kbpf.model.sockets import ConnectedSocket
from kbpf.model.table import FrontendKey, ServiceTable
from kbpf.policy.resolve import Cluster

AddressPort = tuple[bytes, int]
Servers = frozenset[AddressPort]
NOBODY: Servers = frozenset()
IPV4_BYTES = 4


class UdpFrontends:
    """Who may answer on each UDP frontend. A frontend without an owner stays, with nobody, until its flows are gone."""

    def __init__(self) -> None:
        self._keys: dict[ServiceName, Collection[FrontendKey]] = {}
        self._servers: dict[Family, dict[tuple[bytes | None, int], Servers]] = {family: {} for family in Family}
        self._departed: dict[Family, set[tuple[bytes | None, int]]] = {family: set() for family in Family}
        self.has_lost_servers = True
        """Since somebody last said no. Nobody knows who left before the start."""

    def update(self, services: Iterable[ServiceName], table: ServiceTable, cluster: Cluster) -> bool:
        """Take over the state of `services`; True when one of them has a UDP port, or had one before."""
        changed = tuple(services)
        before = [key for service in changed for key in self._keys.pop(service, ())]
        after: dict[FrontendKey, Servers] = {}
        for service in changed:
            if found := servers_of(service, table, cluster):
                self._keys[service] = found.keys()
                after |= found
        for key in before:
            if key not in after:
                self._set(key, NOBODY, is_departed=True)
        for key, servers in after.items():
            self._set(key, servers, is_departed=False)
        return bool(before or after)

    def _set(self, key: FrontendKey, servers: Servers, *, is_departed: bool) -> None:
        place = (network_order(key.address) if key.address else None, key.port)
        self.has_lost_servers |= not self._servers[key.family].get(place, NOBODY) <= servers
        self._servers[key.family][place] = servers
        if is_departed:
            self._departed[key.family].add(place)
        else:
            self._departed[key.family].discard(place)

    def has_any(self, family: Family) -> bool:
        return bool(self._servers[family])

    def stale(self, family: Family, entries: Iterable[UdpEntry]) -> Iterator[UdpEntry]:
        """Those of `entries` that must be forgotten."""
        for entry in entries:
            allowed = self._allowed(family, entry)
            if allowed is not None and (entry.reply_source, entry.reply_port) not in allowed:
                yield entry

    def stale_sockets(self, sockets: Iterable[ConnectedSocket]) -> Iterator[ConnectedSocket]:
        """Those of `sockets` that must be ended. Each was translated for a Service, so there must be one."""
        for each in sockets:
            family = Family.IPV4 if len(each.destination) == IPV4_BYTES else Family.IPV6
            if (each.reply_source, each.reply_port) not in (self._allowed(family, each) or NOBODY):
                yield each

    def _allowed(self, family: Family, flow: UdpEntry | ConnectedSocket) -> Servers | None:
        """None: to none of our frontends."""
        servers = self._servers[family]
        allowed = servers.get((flow.destination, flow.port))
        # A node port. Like kube-proxy, whatever the address: one may have left the node since the flow began.
        return servers.get((None, flow.port)) if allowed is None else allowed

    def forget_departed(self, family: Family) -> None:
        """The flows of frontends without an owner are gone: what comes to them now is not ours."""
        for place in self._departed[family]:
            del self._servers[family][place]
        self._departed[family].clear()


def servers_of(service: ServiceName, table: ServiceTable, cluster: Cluster) -> Mapping[FrontendKey, Servers]:
    """The UDP frontends that the Service owns, each with its endpoints that are serving.

    Ready or not, local or not: who may go on answering an old flow is not the question who gets a new one. A service
    port without any is in it, too, since its flows can only be wrong.
    """
    ports = [port for port in table.ports_of(service) if port.protocol is Protocol.UDP]
    if not ports:
        return {}
    endpoints = cluster.endpoints(service)
    found: dict[FrontendKey, Servers] = {}
    for port in ports:
        servers = _serving(endpoints.get(EndpointsKey(port.family, port.name.port, Protocol.UDP), ()))
        for frontend in table.owned_frontends(port):
            found[port.key(frontend)] = servers
    return found


def _serving(endpoints: Iterable[Endpoint]) -> Servers:
    return frozenset((network_order(endpoint.address), endpoint.port) for endpoint in endpoints if endpoint.serving)
