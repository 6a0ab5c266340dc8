"""Generated tables, nodes and flows: small worlds in which every feature meets every other one.

The addresses come from small pools on purpose, so that clients are backends too, Services claim the same address, and
a frontend is an address of the node.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

from kbpf.model.address import Address, Family, family_of
from kbpf.model.detector import LocalDetector
from kbpf.model.endpoint import Endpoint
from kbpf.model.flow import Flow, Origin
from kbpf.model.names import Protocol, ServiceName, ServicePortName
from kbpf.model.node import NodeTopology
from kbpf.model.service_port import ServicePort
from kbpf.model.table import ServiceTable
from kbpf.policy.resolve import resolve_port

NODE_NAME = "n1"
TOPOLOGY = NodeTopology(NODE_NAME, "za")


@dataclass(frozen=True)
class Places:
    """The addresses of one family's world."""

    node: Address
    loopback: Address
    pod: Address
    outside: tuple[Address, ...]
    endpoints: tuple[tuple[Address, bool], ...]
    """With whether they are on this node; the first one is `pod` itself, the last one on the node's own network."""
    cluster_ips: tuple[Address, ...]
    external: tuple[Address, ...]
    """For external IPs and load balancers; the last one is an address of the node."""
    source_ranges: tuple[str, ...]
    pod_cidr: str
    closed: Address
    """A local address that is in no list of node port addresses."""


def places(family: Family) -> Places:
    v4 = family is Family.IPV4

    def at(v4_text: str, v6_text: str) -> Address:
        return Address(v4_text if v4 else v6_text)

    pod = at("10.42.1.9", "fd42:1::9")
    return Places(
        node=at("192.168.60.11", "fd60::11"),
        loopback=at("127.0.0.1", "::1"),
        pod=pod,
        outside=(at("198.51.100.7", "2001:db8:7::7"), at("10.42.2.9", "fd42:2::9"), at("192.168.60.12", "fd60::12")),
        endpoints=(
            (pod, True),
            (at("10.42.1.10", "fd42:1::10"), True),
            (at("10.42.2.9", "fd42:2::9"), False),
            (at("10.42.2.10", "fd42:2::10"), False),
            (at("192.168.60.11", "fd60::11"), True),
        ),
        cluster_ips=tuple(at(f"10.96.0.{n}", f"fd96::{n}") for n in (1, 2, 3)),
        external=(at("203.0.113.1", "2001:db8:5::1"), at("203.0.113.2", "2001:db8:5::2")),
        source_ranges=("198.51.100.0/24", "192.168.60.0/24") if v4 else ("2001:db8:7::/48", "fd60::/64"),
        pod_cidr="10.42.0.0/16" if v4 else "fd42::/16",
        closed=at("172.16.0.1", "fd99::1"),
    )


@dataclass(frozen=True)
class World:
    family: Family
    table: ServiceTable
    flow: Flow
    local_addresses: frozenset[Address]
    node_port_addresses: tuple[Address, ...] | None
    """None: all of them."""
    localhost_node_ports: bool
    detector: LocalDetector | None
    masquerade_all: bool


HINTS = st.sampled_from([frozenset[str](), frozenset({"za"}), frozenset({"zb"})])
NODE_HINTS = st.sampled_from([frozenset[str](), frozenset({NODE_NAME}), frozenset({"n2"})])
CONDITIONS = st.sampled_from(
    [(True, True, False)] * 3 + [(False, True, True), (False, False, True), (False, False, False)]
)


@st.composite
def endpoint_lists(draw: st.DrawFn, family: Family) -> tuple[Endpoint, ...]:
    chosen = draw(st.lists(st.sampled_from(places(family).endpoints), max_size=4, unique=True))
    hints_all = draw(st.booleans())
    endpoints = []
    for address, is_local in sorted(chosen):
        ready, serving, terminating = draw(CONDITIONS)
        zones, nodes = (draw(HINTS), draw(NODE_HINTS)) if hints_all else (frozenset[str](), frozenset[str]())
        endpoints.append(Endpoint(address, 8080, is_local, ready, serving, terminating, zones, nodes))
    return tuple(endpoints)


@st.composite
def service_ports(draw: st.DrawFn, family: Family, index: int, port_name: str) -> ServicePort:
    where = places(family)
    name = ServicePortName(ServiceName("shop", f"s{index}"), port_name, draw(st.sampled_from(Protocol)))
    return ServicePort(
        name,
        family,
        where.cluster_ips[index],
        port=80 if port_name == "" else 81,
        # Unique in the cluster, as the API sees to it.
        node_port=draw(st.sampled_from([0, 30000 + 2 * index + len(port_name)])),
        external_ips=tuple(draw(st.lists(st.sampled_from(where.external), max_size=2, unique=True))),
        load_balancer_ips=tuple(draw(st.lists(st.sampled_from(where.external), max_size=2, unique=True))),
        source_ranges=tuple(draw(st.lists(st.sampled_from(where.source_ranges), max_size=2, unique=True))),
        affinity_timeout_s=draw(st.sampled_from([0, 0, 300])),
        external_policy_local=draw(st.booleans()),
        internal_policy_local=draw(st.booleans()),
        health_check_node_port=draw(st.sampled_from([0, 31000])),
    )


@st.composite
def tables(draw: st.DrawFn, family: Family) -> ServiceTable:
    table = ServiceTable()
    for index in range(draw(st.integers(1, 3))):
        names = draw(st.sampled_from([("",), ("", "b")]))
        ports = [draw(service_ports(family, index, name)) for name in names]
        resolved = tuple(resolve_port(port, draw(endpoint_lists(family)), TOPOLOGY) for port in ports)
        table.replace(ports[0].name.service, resolved)
    return table


@st.composite
def detectors(draw: st.DrawFn, family: Family) -> LocalDetector | None:
    return draw(st.sampled_from([None, LocalDetector(cidr=places(family).pod_cidr), LocalDetector(interface="veth+")]))


@st.composite
def flows(draw: st.DrawFn, family: Family, table: ServiceTable) -> Flow:
    """Aimed at something that the table speaks of, mostly."""
    where = places(family)
    origin = draw(st.sampled_from(Origin))
    node_addresses = [where.node, where.closed, where.external[-1]]
    if origin is Origin.HOST:
        node_addresses.append(where.loopback)
    targets = [(where.cluster_ips[0], 80), (where.external[0], 80), (where.cluster_ips[0], 82), (where.node, 30099)]
    protocols = {Protocol.TCP}
    for port in table:
        protocols.add(port.protocol)
        for frontend in port.frontends:
            addresses = [frontend.address] if frontend.address else node_addresses
            targets += [(address, frontend.port) for address in addresses]
    destination, number = draw(st.sampled_from(targets))
    sources = {Origin.POD: [where.pod], Origin.OUTSIDE: list(where.outside), Origin.HOST: [where.node]}[origin]
    if origin is Origin.HOST and destination in node_addresses:
        sources = [destination]
    protocol = draw(st.sampled_from(sorted(protocols, key=lambda each: each.value)))
    return Flow(origin, draw(st.sampled_from(sources)), destination, number, protocol)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    family = draw(st.sampled_from(Family))
    where = places(family)
    table = draw(tables(family))
    flow = draw(flows(family, table))
    assert family_of(flow.destination) is family
    opened = draw(st.sampled_from([None, (), (where.node,), (where.loopback, where.node)]))
    return World(
        family=family,
        table=table,
        flow=flow,
        local_addresses=frozenset({where.node, where.loopback, where.closed, where.external[-1]}),
        node_port_addresses=opened,
        localhost_node_ports=draw(st.booleans()),
        detector=draw(detectors(family)),
        masquerade_all=draw(st.booleans()),
    )
