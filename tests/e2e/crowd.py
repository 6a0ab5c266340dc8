"""Services that are only there: two thousand of them with hand-made slices, while the tests use others."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tests.e2e.control_plane import ControlPlane

SERVICES, ENDPOINTS = 2000, 5
NAMESPACE = "crowd"
BATCH = 500


def create(control_plane: ControlPlane) -> None:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    objects = _objects()
    while batch := list(islice(objects, BATCH)):
        items = {"apiVersion": "v1", "kind": "List", "items": batch}
        control_plane.kubectl("create", "--filename=-", "--output=name", stdin=json.dumps(items))


def _objects() -> Iterator[dict[str, Any]]:
    for number in range(SERVICES):
        yield _service(f"service-{number}")
        yield _slice(f"service-{number}", number)


def _service(name: str) -> dict[str, Any]:
    ports = [{"name": "web", "port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"ports": ports},
    }


def _slice(service: str, number: int) -> dict[str, Any]:
    """Addresses of pods that do not exist: nobody calls them."""
    first = number * ENDPOINTS
    addresses = [f"10.128.{n // 250}.{n % 250 + 1}" for n in range(first, first + ENDPOINTS)]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }
