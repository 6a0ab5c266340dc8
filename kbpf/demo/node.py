"""A node with its pods, the way a real one looks to a service proxy, and the network around it.

    <tag>-net ── eth0 <tag>-n1 ── eth0 <tag>-n1-p0
       │               └───────── eth0 <tag>-n1-p1
       └── ...

A node has a cgroup of its own with the children `host` and `pods`, and a path of its own for pins, so that several
nodes run side by side on one machine. remains.py removes it all by the tag, also after a crash.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kbpf.demo.cable import Pair, assign, plug
from kbpf.demo.cgroups import tree_mount
from kbpf.demo.namespaces import Namespace
from kbpf.demo.place import Place
from kbpf.demo.remains import BPFFS

POD_GATEWAY = Pair("169.254.1.1", "fe80::1")
NODE_GATEWAY = Pair("192.168.60.1", "fd60::1")
OUTSIDE = Pair("198.51.100.7", "2001:db8:51::7")
ROUTER_SYSCTLS = {
    "net.ipv4.ip_forward": 1,
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    "net.ipv6.conf.all.forwarding": 1,
}


class Pod(msgspec.Struct, frozen=True):
    """A pod: its addresses of either family or both, its namespace, and the place of its processes."""

    addresses: tuple[str, ...]
    namespace: Namespace
    place: Place


@dataclass(slots=True)
class Network:
    """Everything beyond the nodes in one namespace: routers, clients outside the cluster, pods of other nodes."""

    tag: str
    pods: list[Pod] = field(default_factory=list)

    @property
    def namespace(self) -> Namespace:
        return Namespace(f"{self.tag}-net")

    @property
    def place(self) -> Place:
        return Place(self.namespace.path, str(tree_mount() / self.tag / "net"))

    def create(self) -> None:
        (tree_mount() / self.tag / "net").mkdir(parents=True)
        self.namespace.create(ROUTER_SYSCTLS)
        self.add_addresses(*OUTSIDE)

    def add_addresses(self, *addresses: str) -> None:
        """More addresses of hosts outside the cluster, or of other nodes."""
        self.namespace.ip(*(assign(address, "lo") for address in addresses))

    def add_pod(self, *addresses: str) -> Pod:
        """A pod of another node."""
        name = f"p{len(self.pods)}"
        namespace = Namespace(f"{self.namespace.name}-{name}")
        namespace.create()
        plug(self.namespace, name, namespace, addresses, POD_GATEWAY, OUTSIDE)
        pod = Pod(addresses, namespace, Place(namespace.path, self.place.cgroup))
        self.pods.append(pod)
        return pod

    def route(self, prefix: str, node: "Node") -> None:
        """Send a range, such as LoadBalancer addresses or a node's pods, to a node."""
        self.namespace.ip(
            f"route add {prefix} via {node.addresses.like(prefix)} dev {node.name} src {OUTSIDE.like(prefix)}"
        )


@dataclass(slots=True)
class Node:
    """A node of a network, known to Kubernetes as `n<number>`."""

    network: Network
    number: int = 1
    pods: list[Pod] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"n{self.number}"

    @property
    def namespace(self) -> Namespace:
        return Namespace(f"{self.network.tag}-{self.name}")

    @property
    def addresses(self) -> Pair:
        return Pair(f"192.168.60.{10 + self.number}", f"fd60::{10 + self.number}")

    @property
    def pod_ranges(self) -> Pair:
        return Pair(f"10.42.{self.number}.0/24", f"fd42:{self.number}::/64")

    @property
    def cgroup(self) -> Path:
        return tree_mount() / self.network.tag / self.name

    @property
    def bpffs(self) -> Path:
        return BPFFS / self.namespace.name

    @property
    def host(self) -> Place:
        """Where the node's own processes run: kubelet, the proxy, pods on the host's network."""
        return Place(self.namespace.path, str(self.cgroup / "host"))

    def create(self) -> None:
        for child in ("host", "pods"):
            (self.cgroup / child).mkdir(parents=True)
        self.namespace.create(ROUTER_SYSCTLS)
        plug(self.network.namespace, self.name, self.namespace, self.addresses, NODE_GATEWAY, OUTSIDE)
        for prefix in self.pod_ranges:
            self.network.route(prefix, self)

    def add_pod(self, *addresses: str) -> Pod:
        name = f"p{len(self.pods)}"
        namespace = Namespace(f"{self.namespace.name}-{name}")
        namespace.create()
        plug(self.namespace, name, namespace, addresses, POD_GATEWAY, self.addresses)
        pod = Pod(addresses, namespace, Place(namespace.path, str(self.cgroup / "pods")))
        self.pods.append(pod)
        return pod
