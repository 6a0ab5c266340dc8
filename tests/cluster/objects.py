"""Objects as a user, a controller or a kubelet would write them into the API server."""

from typing import Any

from tests.cluster.api import Key, Tree


def service(name: str, *, namespace: str = "shop", labels: Tree | None = None, port: int = 80, **spec: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": labels or {}},
        "spec": {"ports": [{"name": "http", "port": port}]} | spec,
    }


def endpoint_slice(name: str, *addresses: str, namespace: str = "shop", labels: Tree | None = None) -> Tree:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{name}-1",
            "labels": {"kubernetes.io/service-name": name} | (labels or {}),
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }


def node(name: str, *addresses: str, **spec: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def service_key(name: str, namespace: str = "shop") -> Key:
    return Key("Service", namespace, name)


def slice_key(name: str, namespace: str = "shop") -> Key:
    return Key("EndpointSlice", namespace, f"{name}-1")
