"""The objects of `make bench-iptables`: many Services of five endpoints each, and one that tells when rules are there.

The teller's only endpoint is a port of the node itself, so a connect in the node's namespace shows which rules are in
force, without a look into the rules that would cost more than the sync that it measures.
"""

from typing import Any

Tree = dict[str, Any]
NAMESPACE = "bench"
NODE_NAME, NODE_ADDRESS = "n1", "192.168.60.11"
SERVICE_RANGE = "10.96.0.0/12"
TELLER_ADDRESS, TELLER_PORT = "10.111.0.9", 80
ENDPOINTS = 5


NODE: Tree = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": NODE_NAME},
    "spec": {"podCIDR": "10.42.1.0/24"},
    "status": {"addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}]},
}
"""kube-proxy waits half a minute for it."""


def crowd(first: int, last: int) -> list[Tree]:
    """The Services with these numbers, and their endpoints."""
    return [tree for number in range(first, last) for tree in _one_of_many(number)]


def teller() -> Tree:
    return _service("teller", TELLER_ADDRESS)


def teller_slice(target_port: int) -> Tree:
    return _slice("teller", [NODE_ADDRESS], target_port)


def _one_of_many(number: int) -> list[Tree]:
    name, place = f"s{number}", f"{number // 250 % 250}.{number % 250 + 1}"
    endpoints = [f"10.{32 + number // 62500 * ENDPOINTS + each}.{place}" for each in range(ENDPOINTS)]
    return [_service(name, f"10.{100 + number // 62500}.{place}"), _slice(name, endpoints, 8080)]


def _service(name: str, address: str) -> Tree:
    fields = {"clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": fields | {"ports": [{"name": "http", "protocol": "TCP", "port": TELLER_PORT}]},
    }


def _slice(name: str, addresses: list[str], port: int) -> Tree:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": port}],
        "endpoints": [
            {"addresses": [each], "conditions": {"ready": True}, "nodeName": NODE_NAME} for each in addresses
        ],
    }
