"""Two nodes for proxies, a third one that has only pods, a client everywhere, and places where pods can run.

A place for a pod is a namespace with an address in each family whose ports answer from the beginning; it becomes a pod
when the API says so (pods.py). What is no pod any more still answers, so that reaching it is seen.
"""

from typing import NamedTuple

from kbpf.demo.client import Client
from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.exchange import spell
from kbpf.demo.node import OUTSIDE, Network, Node
from kbpf.demo.place import Place
from kbpf.demo.remains import remove
from tests.kernel.world import destination
from tests.scenarios.harness.agent import Agent, Target

TCP_PORTS, UDP_PORT = (8080, 8081), 9000
SLOTS = {"n1": 3, "n2": 3, "n3": 2}
OTHER_OUTSIDE = "198.51.100.8"
ELSEWHERE = "192.0.2.50"
"""A host outside the cluster, such as a load balancer that is no address of ours."""
EXTERNAL_RANGES = {"203.0.113.0/25": "n1", "203.0.113.128/25": "n2", "2001:db8:113::/64": "n1"}
PATIENCE_S = 1.5


class Slot(NamedTuple):
    node: str
    addresses: tuple[str, str]
    place: Place


class Topology:
    """Everything named after `tag`; stands until `close`."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.network = Network(tag)
        self.nodes = {f"n{number}": Node(self.network, number) for number in (1, 2)}
        self._agents: dict[Place, Agent] = {}
        try:
            self._build()
        except BaseException:
            remove(tag)
            raise

    def _build(self) -> None:
        self.network.create()
        for node in self.nodes.values():
            node.create()
        for prefix, name in EXTERNAL_RANGES.items():
            self.network.route(prefix, self.nodes[name])
        self.network.add_addresses(OTHER_OUTSIDE, ELSEWHERE)
        self.clients = {
            name: node.add_pod(f"10.42.{node.number}.100", f"fd42:{node.number}::100").place
            for name, node in self.nodes.items()
        }
        self.slots = [self._add_slot(name, number) for name, count in SLOTS.items() for number in range(count)]
        self.hosts = {name: Slot(name, tuple(node.addresses), node.host) for name, node in self.nodes.items()}
        places = [*self.slots, *self.hosts.values()]
        listeners = [each for slot in places for address in slot.addresses for each in _listeners(slot.place, address)]
        self._server = EchoServer([*listeners, Listener(self.network.place, ELSEWHERE, 80)])

    def _add_slot(self, node: str, number: int) -> Slot:
        addresses = (f"10.42.{node[1:]}.{11 + number}", f"fd42:{node[1:]}::{11 + number}")
        made = self.nodes[node].add_pod(*addresses) if node in self.nodes else self.network.add_pod(*addresses)
        return Slot(node, addresses, made.place)

    def place(self, origin: str) -> Place:
        """`pod n1`, `host n1`, `outside`, or an address of a slot."""
        kind, _, node = origin.partition(" ")
        match kind:
            case "pod":
                return self.clients[node]
            case "host":
                return self.nodes[node].host
            case "outside":
                return self.network.place
        return next(slot.place for slot in self.slots if kind in slot.addresses)

    def client(self, origin: str) -> Client:
        return Client(self.place(origin))

    def agent(self, origin: str) -> Agent:
        place = self.place(origin)
        if place not in self._agents:
            self._agents[place] = Agent(place)
        return self._agents[place]

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()
        self._server.close()
        remove(self.tag)


def target(to: str, *, mode: str = "connect", source: str | None = None, timeout_s: float = PATIENCE_S) -> Target:
    """`to` as in the kernel tests: `10.96.0.10:80`, `[fd96::10]:53/udp`."""
    address, port, protocol = destination(to)
    return Target(address, port, protocol.upper(), mode, source, timeout_s)


def spelled(address: str, port: int, protocol: str = "TCP") -> str:
    return spell(address, port) + ("/udp" if protocol == "UDP" else "")


def is_ipv6(to: str) -> bool:
    return to.startswith("[")


def outside_address(to: str) -> str:
    return OUTSIDE.v6 if is_ipv6(to) else OUTSIDE.v4


def _listeners(place: Place, address: str) -> list[Listener]:
    return [*(Listener(place, address, port) for port in TCP_PORTS), Listener(place, address, UDP_PORT, "udp")]
