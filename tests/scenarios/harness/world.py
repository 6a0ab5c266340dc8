"""The cluster of cluster.py out of network namespaces, furnished for all scenarios at once.

clients     a pod each: 10.42.1.9, 10.42.1.10, and `ext`, whose packets to Services arrive on n1's wire
endpoints   one namespace holds all that live on n1, another one all others; each answers with its own name
elsewhere   whatever leaves n1 for a Service address unchanged is answered by that address itself: that is `pass`
"""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.exchange import Protocol
from kbpf.demo.node import Network, Node, Pod
from kbpf.demo.place import Place
from kbpf.demo.remains import remove
from kbpf.model.address import Family
from kbpf.model.detector import in_cidr
from kbpf.model.flow import Flow, Origin
from tests.scenarios.harness.agent import Agent
from tests.scenarios.harness.cluster import (
    CLUSTER_CIDR,
    DEFAULT_SOURCE,
    NODE,
    NODE_ADDRESSES,
    NODE_NAME,
    SECOND_POD,
)
from tests.scenarios.harness.format import FlowBase, Scenario
from tests.scenarios.harness.objects import Tree, expand

FRONTEND_RANGES = ("10.96.0.0/16", "203.0.113.0/24", "fd96::/112", "2001:db8:5::/48")
OUTSIDE_CLIENT = ("198.51.100.9", "192.0.2.9", "2001:db8:51::9")
VIA_NODE = 300
"""The routing table of `net` for packets that must come to n1 over its wire."""


class World:
    """Stands from its construction until `close`."""

    def __init__(self, tag: str, scenarios: Iterable[Scenario], more_objects: Iterable[Tree] = ()) -> None:
        self.tag = tag
        self.network = Network(tag)
        self.node = Node(self.network)
        self._agents: dict[Place, Agent] = {}
        self._servers: list[EchoServer] = []
        flows = list(dict.fromkeys(_flows(scenarios)))
        slices = [*_slices(scenarios), *more_objects]
        try:
            self._build(flows, slices)
        except BaseException:
            self.close()
            raise

    def _build(self, flows: list[Flow], slices: list[Tree]) -> None:
        self.network.create()
        self.node.create()
        self._set_sysctls()
        self._pods = {address: pod for pod in self._client_pods() for address in pod.addresses}
        self._outside = self.network.add_pod(*OUTSIDE_CLIENT)
        here, away = _endpoint_addresses(slices)
        self._pods |= dict.fromkeys(here, self.node.add_pod(*here))
        endpoints = dict.fromkeys(here, self._pods[here[0]].place) | dict.fromkeys(
            away, self.network.add_pod(*away).place
        )
        endpoints |= dict.fromkeys(NODE_ADDRESSES.values(), self.node.host)
        self._servers.append(EchoServer(sorted(set(_endpoint_listeners(slices, endpoints)), key=repr)))
        elsewhere = list(dict.fromkeys(self._elsewhere(flows)))
        self.network.add_addresses(*{each.address for each in elsewhere if each.place == self.network.place})
        self._route_frontends()
        self._servers.append(EchoServer(elsewhere))

    def _client_pods(self) -> Iterator[Pod]:
        first = [address for (origin, _), address in DEFAULT_SOURCE.items() if origin == "pod"]
        yield self.node.add_pod(*first)
        yield self.node.add_pod(*SECOND_POD)

    def _set_sysctls(self) -> None:
        """Many refusals in a row would meet the kernel's limit for ICMP errors, and a router's hints would mislead."""
        with self.node.namespace.entered():
            for name in ("net.ipv4.icmp_ratelimit", "net.ipv6.icmp.ratelimit"):
                Path("/proc/sys", *name.split(".")).write_text("0")
            for device in ("all", "default", "eth0"):
                Path("/proc/sys/net/ipv4/conf", device, "send_redirects").write_text("0")

    def _route_frontends(self) -> None:
        """The outside client's packets to frontends go to n1, and so do the answers of `elsewhere`.

        The addresses are local to `net`, and local comes first; the table `local` therefore moves behind these rules.
        """
        client_device = "p0"
        with self.network.namespace.entered():
            # A packet on its way to n1 would be matched with the answering socket already, and dropped for having one.
            Path("/proc/sys/net/ipv4/ip_early_demux").write_text("0")
        for family, gateway in (("-4", self.node.addresses.v4), ("-6", self.node.addresses.v6)):
            lines = [f"route add default via {gateway} dev {self.node.name} table {VIA_NODE}"]
            for prefix in FRONTEND_RANGES:
                if (":" in prefix) == (family == "-6"):
                    lines += [
                        f"rule add pref 10 iif {client_device} to {prefix} lookup {VIA_NODE}",
                        f"rule add pref 20 iif lo from {prefix} lookup {VIA_NODE}",
                    ]
            lines += ["rule add pref 100 lookup local", "rule del pref 0"]
            # Rules name their family by an option, which no line of a batch can carry.
            command = ["ip", family, "-netns", self.network.namespace.name, "-batch", "-"]
            subprocess.run(command, input="\n".join(lines), text=True, check=True)

    def _elsewhere(self, flows: list[Flow]) -> Iterator[Listener]:
        for flow in (flow for flow in flows if flow.protocol.value != "SCTP"):
            protocol = _spelled(flow.protocol.value)
            if flow.destination in NODE.local_addresses:
                yield Listener(self.node.host, flow.destination, flow.port, protocol)
            elif not _is_pod(flow.destination):
                yield Listener(self.network.place, flow.destination, flow.port, protocol)

    def agent(self, flow: Flow) -> tuple[Agent, str | None]:
        """The client of a flow, and the source address to bind where its place has several."""
        if flow.origin is Origin.HOST:
            return self._agent_at(self.node.host), None
        pod = self._outside if flow.origin is Origin.OUTSIDE else self._pods[flow.source]
        same_family = [address for address in pod.addresses if (":" in address) == (":" in flow.source)]
        return self._agent_at(pod.place), flow.source if len(same_family) > 1 else None

    def client(self) -> Agent:
        """The first client pod's."""
        return self._agent_at(self._pods[DEFAULT_SOURCE["pod", Family.IPV4]].place)

    def _agent_at(self, place: Place) -> Agent:
        if place not in self._agents:
            self._agents[place] = Agent(place)
        return self._agents[place]

    def close_sessions(self) -> None:
        for agent in self._agents.values():
            agent.close_sessions()

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()
        for server in self._servers:
            server.close()
        remove(self.tag)


def _flows(scenarios: Iterable[Scenario]) -> Iterator[Flow]:
    for scenario in scenarios:
        for step in scenario.steps:
            if isinstance(step, FlowBase):
                yield from step.route.flows


def _slices(scenarios: Iterable[Scenario]) -> Iterator[Tree]:
    for scenario in scenarios:
        for state in scenario.states:
            yield from (tree for tree in expand(state) if tree["kind"] == "EndpointSlice")


def _endpoints(slices: Iterable[Tree]) -> Iterator[tuple[str, str | None, Tree]]:
    """Address, node and slice of everything that could serve."""
    for tree in slices:
        for endpoint in tree.get("endpoints") or []:
            for address in endpoint.get("addresses") or []:
                if _is_pod(address) or address in NODE_ADDRESSES.values():
                    yield address, endpoint.get("nodeName"), tree


def _is_pod(address: str) -> bool:
    try:
        return any(in_cidr(address, cidr) for cidr in CLUSTER_CIDR.values())  # type: ignore[arg-type]
    except ValueError:
        return False


def _endpoint_addresses(slices: Iterable[Tree]) -> tuple[list[str], list[str]]:
    """Those of pods on n1, and of all others."""
    nodes = {address: node for address, node, _ in _endpoints(slices) if _is_pod(address)}
    here = sorted(address for address, node in nodes.items() if node == NODE_NAME)
    return here, sorted(nodes.keys() - set(here))


def _endpoint_listeners(slices: Iterable[Tree], places: dict[str, Place]) -> Iterator[Listener]:
    for address, _, tree in _endpoints(slices):
        for port in tree.get("ports") or []:
            if port.get("port") and port["protocol"] != "SCTP":
                yield Listener(places[address], address, port["port"], _spelled(port["protocol"]))


def _spelled(protocol: str) -> Protocol:
    return "tcp" if protocol == "TCP" else "udp"
