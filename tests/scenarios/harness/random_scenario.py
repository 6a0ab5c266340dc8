"""A scenario out of a number: a few Services that mix every feature, a change in the middle, ten flows.

What each flow must come to is what the reference model says; playing it on the other engines compares them. The same
number always gives the same scenario. Addresses come from small pools, so that Services meet: on one external address,
on one endpoint, on a client that is an endpoint itself.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from kbpf.model.address import Family, family_of, host_port, parse_address
from kbpf.model.flow import Action, Verdict
from tests.scenarios.harness.cluster import CLIENT_POD, NODE_ADDRESSES, NODE_NAME
from tests.scenarios.harness.flows import parse_route
from tests.scenarios.harness.format import (
    AnyStep,
    Apply,
    EndpointEntry,
    FlowStep,
    IngressEntry,
    Objects,
    Scenario,
    ServiceEntry,
    ServicePortEntry,
    SliceEntry,
    SlicePortEntry,
)
from tests.scenarios.harness.objects import Cluster
from tests.scenarios.harness.pure import ReferenceEngine

FLOWS_A_STATE = 5
FLOWS_A_SCENARIO = 2 * FLOWS_A_STATE
NAMES = ("a", "b", "c")
EXTERNAL = {Family.IPV4: ("203.0.113.201", "203.0.113.202"), Family.IPV6: ("2001:db8:5::201", "2001:db8:5::202")}
RANGES = ("198.51.100.0/24", "192.168.60.0/24", "10.42.0.0/16", "2001:db8:51::/64", "fd60::/64")
CLIENTS = {Family.IPV4: ("198.51.100.9", "192.0.2.9"), Family.IPV6: ("2001:db8:51::9",)}
LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
CONDITIONS = ((None, None, None),) * 4 + ((False, True, True), (False, False, True), (False, False, False))
STICKY_FLOWS = 5
FIRST_DATAGRAM = {"ebpf-kernel": "the first datagram is lost until the rule that masquerades stands"}
PODS = {
    Family.IPV4: [(f"10.42.{node}.{200 + n}", f"n{node}") for node in (1, 2) for n in range(4)],
    Family.IPV6: [(f"fd42:{node}::{200 + n}", f"n{node}") for node in (1, 2) for n in range(4)],
}
"""With their nodes."""


def random_scenario(seed: int) -> Scenario:
    random, cluster, reference = Random(seed), Cluster(), ReferenceEngine()
    services = {name: random_service(random, name) for name in random.sample(NAMES, random.randint(1, 3))}
    slices = {name: random_slices(random, entry) for name, entry in services.items()}
    first = Objects(services=list(services.values()), slices=[each for some in slices.values() for each in some])
    reference.apply(cluster.apply(first))
    steps: list[AnyStep] = list(_flow_steps(random, services, reference))
    change = _change(random, services)
    reference.apply(cluster.apply(change))
    steps.append(Apply(apply=change))
    steps += _flow_steps(random, services, reference)
    return Scenario(f"random-{seed}", "random objects and flows", {}, first, tuple(steps))


# -- objects ---------------------------------------------------------------------------------------------------------


def random_service(random: Random, name: str) -> ServiceEntry:
    number = NAMES.index(name)
    families = random.choice([("4",), ("4",), ("6",), ("4", "6")])
    kind = random.choice(["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"])
    addresses = {"4": f"10.96.200.{number + 1}", "6": f"fd96::2{number:02}"}
    external = [each for family in Family for each in EXTERNAL[family]]
    is_balancer = kind == "LoadBalancer"
    is_local = kind != "ClusterIP" and random.random() < 0.4
    has_affinity = random.random() < 0.3
    return ServiceEntry(
        ns="random",
        name=name,
        type=kind,
        clusterIPs=[addresses[family] for family in families],
        ports=list(_ports(random, number, has_node_ports=kind != "ClusterIP")),
        annotations={"kbpf.io/datapath": "iptables"} if random.random() < 0.1 else {},
        externalIPs=random.sample(external, random.choice([0, 0, 1, 2])),
        lbIngress=[_ingress(random, each) for each in random.sample(external, random.choice([1, 2]))]
        if is_balancer
        else [],
        sessionAffinity="ClientIP" if has_affinity else "None",
        affinityTimeout=random.choice([60, 10800]) if has_affinity else None,
        externalTrafficPolicy="Local" if is_local else None,
        internalTrafficPolicy=random.choice([None, None, "Local"]),
        loadBalancerSourceRanges=random.sample(RANGES, 2) if is_balancer and random.random() < 0.4 else [],
    )


def _ports(random: Random, number: int, *, has_node_ports: bool) -> Iterator[ServicePortEntry]:
    """Of the same numbers in every Service, so that external addresses are claimed twice."""
    web, dns = ("web", "TCP", 80), ("dns", "UDP", 53)
    for name, protocol, port in random.choice([(web,), (dns,), (web, dns), (web, dns)]):
        node_port = 30300 + 100 * number + port if has_node_ports else 0
        yield ServicePortEntry(name=name, protocol=protocol, port=port, nodePort=node_port)


def _ingress(random: Random, address: str) -> IngressEntry:
    return IngressEntry(ip=address, ipMode=random.choice([None, "VIP", "VIP", "Proxy"]))


def random_slices(random: Random, service: ServiceEntry) -> list[SliceEntry]:
    """One for each family that the Service has."""
    ports = [SlicePortEntry(name=each.name, protocol=each.protocol, port=8000 + each.port) for each in service.ports]
    found: list[SliceEntry] = []
    for address in service.clusterIPs or []:
        family = family_of(address)
        chosen = random.sample(PODS[family], random.choice([0, 1, 2, 3, 4]))
        hints = random.choice([[], [], ["za"], ["za", "zb"]])
        endpoints = [_endpoint(random, pod, node, hints) for pod, node in sorted(chosen)]
        found.append(
            SliceEntry(
                service=f"{service.ns}/{service.name}",
                name=f"{service.name}-{family.value.lower()}",
                family=family.value,
                ports=ports,
                endpoints=endpoints,
            )
        )
    return found


def _endpoint(random: Random, address: str, node: str, hints: list[str]) -> EndpointEntry:
    ready, serving, terminating = random.choice(CONDITIONS)
    return EndpointEntry(ip=address, node=node, ready=ready, serving=serving, terminating=terminating, hints=hints)


def _change(random: Random, services: dict[str, ServiceEntry]) -> Objects:
    """Another version of one Service, with other endpoints, and other endpoints of another one."""
    name = random.choice(sorted(services))
    old = services[name]
    new = msgspec.structs.replace(random_service(random, name), clusterIPs=old.clusterIPs)
    services[name] = new
    other = services[random.choice(sorted(services))]
    slices = {each.name: each for entry in (new, other) for each in random_slices(random, entry)}
    return Objects(services=[new], slices=list(slices.values()))


# -- flows -----------------------------------------------------------------------------------------------------------


def _flow_steps(random: Random, services: dict[str, ServiceEntry], reference: ReferenceEngine) -> Iterator[FlowStep]:
    for _ in range(FLOWS_A_STATE):
        text = _flow(random, services)
        if _talks_to_itself(text, reference):
            text = text.replace(f"pod {parse_route(text).source}", "pod")
        route = parse_route(text)
        verdict = reference.verdict(route.flows[0])
        is_sticky = len(verdict.backends) > 1 and reference.has_affinity(route.flows[0])
        skip = {}
        if route.origin.value == "outside" and route.protocol == "UDP" and _is_cluster_ip(route.destination, services):
            skip = FIRST_DATAGRAM
        yield FlowStep(
            flow=text,
            expect=_expected(verdict),
            sticky=is_sticky,
            count=STICKY_FLOWS if is_sticky else None,
            skip=skip,
        )


def _talks_to_itself(text: str, reference: ReferenceEngine) -> bool:
    """All endpoints of n1 live in one namespace of the harness: what one of them calls must not be another one."""
    [flow] = parse_route(text).flows
    here = {address for pods in PODS.values() for address, node in pods if node == NODE_NAME}
    others = {backend.address for backend in reference.verdict(flow).backends} - {flow.source}
    return flow.source in here and not here.isdisjoint(others)


def _flow(random: Random, services: dict[str, ServiceEntry]) -> str:
    service = services[random.choice(sorted(services))]
    family = family_of(random.choice(service.clusterIPs or [""]))
    port = random.choice(service.ports)
    origin = random.choice(["pod", "pod", "host", "ext"])
    destination, number = random.choice(list(_targets(service, family, port, origin)))
    if random.random() < 0.05:
        number += 1000  # nobody's
    source = {"pod": _pod_client(random, family), "host": "", "ext": random.choice(CLIENTS[family])}[origin]
    if origin == "host" and parse_address(destination) in (LOOPBACK[family], NODE_ADDRESSES[family]):
        source = destination
    head = f"{origin} {source}" if source else origin
    return f"{head} -> {host_port(destination, number)}/{port.protocol.lower()}"


def _targets(service: ServiceEntry, family: Family, port: ServicePortEntry, origin: str) -> Iterator[tuple[str, int]]:
    addresses = [*(service.clusterIPs or []), *service.externalIPs, *(_address(each) for each in service.lbIngress)]
    yield from ((each, port.port) for each in addresses if family_of(each) is family)
    if port.nodePort:
        yield NODE_ADDRESSES[family], port.nodePort
        if origin == "host":
            yield LOOPBACK[family], port.nodePort


def _address(entry: str | IngressEntry) -> str:
    return entry if isinstance(entry, str) else entry.ip or ""


def _pod_client(random: Random, family: Family) -> str:
    """A pod of this node, an endpoint itself now and then."""
    here = [address for address, node in PODS[family] if node == NODE_NAME]
    return random.choice([CLIENT_POD[family], CLIENT_POD[family], *here[:1]])


def _expected(verdict: Verdict) -> str | list[str]:
    if verdict.action is not Action.FORWARD:
        return str(verdict.action.value)
    return sorted(host_port(each.address, each.port) for each in verdict.backends)


def _is_cluster_ip(address: str, services: dict[str, ServiceEntry]) -> bool:
    return any(address in (each.clusterIPs or []) for each in services.values())
