"""The cluster's wires: a namespace for the control plane with a bridge, and one for each node at the end of a cable.

Nodes have addresses of both families; every node and the control plane know the way to every node's pods.
"""

from dataclasses import dataclass

from kbpf.demo.namespaces import DIRECTORY, Namespace

PREFIX = "kbpfe2e"
CONTROL_ADDRESS = "172.30.0.1"
CONTROL_ADDRESS_V6 = "fd00:30::1"
CLUSTER_CIDR = "10.244.0.0/16,fd00:244::/32"
SERVICE_CIDR = "10.96.0.0/16,fd00:96::/112"
FORWARDING = {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1}


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    number: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def namespace(self) -> Namespace:
        return Namespace(f"{PREFIX}-{self.name}")

    @property
    def v4(self) -> str:
        return f"172.30.0.{10 + self.number}"

    @property
    def v6(self) -> str:
        return f"fd00:30::{10 + self.number}"

    @property
    def pods_v4(self) -> str:
        return f"10.244.{self.number}.0/24"

    @property
    def pods_v6(self) -> str:
        return f"fd00:244:{self.number}::/64"

    @property
    def routes_to_pods(self) -> tuple[str, str]:
        return f"route add {self.pods_v4} via {self.v4}", f"route add {self.pods_v6} via {self.v6}"


CONTROL = Namespace(f"{PREFIX}-control")


def create(nodes: list[NodeAddresses]) -> None:
    # The control plane does not forward: a packet for a Service that no node handled ends there.
    CONTROL.create()
    CONTROL.ip(
        "link add bridge0 type bridge",
        f"address add {CONTROL_ADDRESS}/24 dev bridge0",
        f"address add {CONTROL_ADDRESS_V6}/64 dev bridge0 nodad",
        "link set bridge0 up",
    )
    for node in nodes:
        _connect(node)
    for node in nodes:
        CONTROL.ip(*node.routes_to_pods)
        for other in nodes:
            if other != node:
                node.namespace.ip(*other.routes_to_pods)


def _connect(node: NodeAddresses) -> None:
    node.namespace.create(FORWARDING)
    CONTROL.ip(
        f"link add {node.name} type veth peer name eth0 netns {node.namespace.name}",
        f"link set {node.name} master bridge0 up",
    )
    node.namespace.ip(
        f"address add {node.v4}/24 dev eth0",
        f"address add {node.v6}/64 dev eth0 nodad",
        "link set eth0 up",
        f"route add default via {CONTROL_ADDRESS}",
        f"route add ::/0 via {CONTROL_ADDRESS_V6}",
    )


def remove() -> None:
    """All of it, also what an earlier run left."""
    for path in sorted(DIRECTORY.glob(f"{PREFIX}-*")):
        Namespace(path.name).delete()
