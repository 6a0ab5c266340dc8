"""The objects of `make bench-datapath`: many Services with one server behind all of them, and the one that is measured.

All proxies get the same, kbpf as a manifest and kube-proxy through an API server. The measured Service is the last by
name: where rules are searched one by one and written by name, it stands at the end.
"""

from tests.bench.bed import PORT, SERVER
from tests.bench.cluster_objects import NAMESPACE, NODE, NODE_NAME, Tree

TARGET_ADDRESS, TARGET_PORT, NODE_PORT = "10.111.0.9", 80, 30080
PROTOCOLS = ("TCP", "UDP")


def crowd(first: int, last: int) -> list[Tree]:
    """Services with these numbers."""
    return [tree for number in range(first, last) for tree in _objects(f"s{number}", _address(number))]


def target(*, has_node_port: bool) -> list[Tree]:
    """The Service that is measured: by its ClusterIP from a pod, by its node port from outside."""
    return _objects("target", TARGET_ADDRESS, NODE_PORT if has_node_port else 0)


def manifest(services: int, *, has_node_port: bool) -> Tree:
    items = [NODE, *crowd(0, services - 1), *target(has_node_port=has_node_port)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _address(number: int) -> str:
    return f"10.{100 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def _objects(name: str, address: str, node_port: int = 0) -> list[Tree]:
    ports: list[Tree] = [{"name": each.lower(), "protocol": each, "port": TARGET_PORT} for each in PROTOCOLS]
    for index, port in enumerate(ports if node_port else ()):
        port["nodePort"] = node_port + index
    spec = {
        "type": "NodePort" if node_port else "ClusterIP",
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": ports,
    }
    slice_ports = [{"name": each.lower(), "protocol": each, "port": PORT} for each in PROTOCOLS]
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name), "spec": spec},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _metadata(name) | {"labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [SERVER], "nodeName": NODE_NAME, "conditions": {"ready": True}}],
            "ports": slice_ports,
        },
    ]


def _metadata(name: str) -> Tree:
    return {"name": name, "namespace": NAMESPACE}
