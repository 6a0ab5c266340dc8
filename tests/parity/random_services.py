"""Random Services that mix every feature a service proxy knows, valid for the API server."""

import zlib
from random import Random

from tests.cluster.api import Tree

FAMILIES = (["IPv4"], ["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"])
PROTOCOLS = ("TCP", "TCP", "UDP", "SCTP")
PORT_NAMES = ("", "http", "dns", "p-1", "grpc")
EXTERNAL_IPS = ("203.0.113.5", "203.0.113.6", "2001:db8:113::5", "192.168.60.77", "2001:db8:113::6")
INGRESS_IPS = ("198.51.100.20", "198.51.100.21", "2001:db8:51::20", "198.51.100.22", "2001:db8:51::21")
# Some hold the node's own address, and two are of no restriction at all.
SOURCE_RANGES = (
    "192.168.60.0/24",
    "192.168.60.11/32",
    "172.20.0.0/16",
    "10.0.0.0/8",
    "0.0.0.0/0",
    "fd60::/64",
    "2001:db8:100::/56",
    "::/0",
)


class Numbers:
    """Cluster IPs and node ports that no other object of the set has: `share` of 2 keeps two sets in turn apart."""

    def __init__(self, random: Random, share: int) -> None:
        self.random, self.share = random, share
        self.used: set[tuple[str, int]] = set()

    def cluster_ip(self, family: str) -> str:
        number = self._new("ip", 2, 60_000)
        if family == "IPv6":
            return f"fd96::{self.share + 1}:{number:x}"
        return f"10.{100 + self.share}.{number >> 8}.{number & 255}"

    def node_port(self) -> int:
        return 30_000 + 1_300 * self.share + self._new("port", 0, 1_299)

    def _new(self, kind: str, first: int, last: int) -> int:
        while (key := (kind, self.random.randint(first, last))) in self.used:
            pass
        self.used.add(key)
        return key[1]


def random_service(random: Random, numbers: Numbers, namespace: str, name: str, old: Tree | None = None) -> Tree:
    """`old`: the Service as it is; what the API server does not let one change stays."""
    kind = random.choice(["ClusterIP", "ClusterIP", "NodePort", "NodePort", "LoadBalancer", "LoadBalancer"])
    spec: Tree = {"type": kind, **_addresses(random, numbers, old)}
    external_ips = random.sample(EXTERNAL_IPS, random.choice([0, 0, 0, 1, 2]))
    has_node_ports = kind == "NodePort" or (kind == "LoadBalancer" and random.random() < 0.8)
    spec["ports"] = _ports(random, numbers, _first_port(namespace, name), has_node_ports)
    spec["externalIPs"] = external_ips
    spec["internalTrafficPolicy"] = random.choice(["Cluster", "Cluster", "Local"])
    if random.random() < 0.3:
        spec["sessionAffinity"] = "ClientIP"
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": random.choice([1, 60, 10800, 86400])}}
    if kind != "ClusterIP" or external_ips:
        spec["externalTrafficPolicy"] = random.choice(["Cluster", "Local"])
    status: Tree = {"loadBalancer": {}}
    if kind == "LoadBalancer":
        spec |= _balancer(random, numbers, has_node_ports, is_local=spec["externalTrafficPolicy"] == "Local")
        status = {"loadBalancer": _ingress(random)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": _labels(random), "annotations": _note(random)},
        "spec": spec,
        "status": status,
    }


def headless_service(namespace: str, name: str) -> Tree:
    spec = {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def external_name_service(namespace: str, name: str) -> Tree:
    spec = {"type": "ExternalName", "externalName": "example.org", "ports": [{"name": "http", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def _addresses(random: Random, numbers: Numbers, old: Tree | None) -> Tree:
    if old is not None:
        return {field: old["spec"][field] for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")}
    families = random.choice(FAMILIES)
    addresses = [numbers.cluster_ip(family) for family in families]
    return {
        "clusterIP": addresses[0],
        "clusterIPs": addresses,
        "ipFamilies": families,
        "ipFamilyPolicy": "RequireDualStack" if len(families) == 2 else "SingleStack",
    }


def _first_port(namespace: str, name: str) -> int:
    """Of its own for each Service: of two that claim one external address and port, kube-proxy takes one at random."""
    return 100 + zlib.crc32(f"{namespace}/{name}".encode()) % 500 * 10


def _ports(random: Random, numbers: Numbers, first_port: int, has_node_ports: bool) -> list[Tree]:
    """Without a name only if it is the only one; a number may occur once with each protocol."""
    count = random.choice([1, 1, 2, 3])
    names = [random.choice(PORT_NAMES)] if count == 1 else random.sample(PORT_NAMES[1:], count)
    pairs: dict[tuple[int, str], None] = {}
    while len(pairs) < count:
        pairs[first_port + random.randint(0, 3), random.choice(PROTOCOLS)] = None
    ports: list[Tree] = []
    for name, (number, protocol) in zip(names, pairs, strict=True):
        port: Tree = {"name": name, "port": number, "protocol": protocol}
        if has_node_ports:
            port["nodePort"] = numbers.node_port()
        ports.append(port)
    return ports


def _balancer(random: Random, numbers: Numbers, has_node_ports: bool, is_local: bool) -> Tree:
    spec: Tree = {"allocateLoadBalancerNodePorts": has_node_ports}
    if random.random() < 0.5:
        spec["loadBalancerSourceRanges"] = random.sample(SOURCE_RANGES, random.choice([1, 2, 3]))
    if is_local:
        spec["healthCheckNodePort"] = numbers.node_port()
    return spec


def _ingress(random: Random) -> Tree:
    entries: list[Tree] = []
    for address in random.sample(INGRESS_IPS, random.choice([0, 1, 1, 2, 3])):
        mode = random.choice(["VIP", "VIP", "VIP", "Proxy"])
        entries.append({"ip": address, "ipMode": mode})
    if random.random() < 0.1:
        entries.append({"hostname": "lb.example.org"})
    return {"ingress": entries} if entries else {}


def _labels(random: Random) -> dict[str, str]:
    return {"service.kubernetes.io/service-proxy-name": "other"} if random.random() < 0.05 else {}


def _note(random: Random) -> dict[str, str]:
    """An annotation is of no matter, but it makes the object different."""
    return {"note": str(random.randint(0, 3))}
