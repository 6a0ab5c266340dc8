"""What an API server sends, as bytes, for tests of the source that listens to it."""

import json
from typing import Any

Tree = dict[str, Any]


def tree(name: str, version: str = "1", namespace: str = "shop", **fields: Any) -> Tree:
    """A Service, unless `fields` make it something else."""
    metadata = {"name": name, "namespace": namespace, "resourceVersion": version}
    return {"metadata": metadata, "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}} | fields


def slice_tree(name: str, *addresses: str, service: str = "web", namespace: str = "shop", version: str = "1") -> Tree:
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": version, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": [address]} for address in addresses],
    }


def node_tree(name: str, *addresses: str, pod_cidrs: tuple[str, ...] = (), version: str = "1") -> Tree:
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "spec": {"podCIDRs": list(pod_cidrs)},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def page_of(*trees: Tree, version: str = "100", continue_: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": version, "continue": continue_}, "items": trees}).encode()


def line_of(kind: str, thing: Tree) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


def bookmark(version: str, *, ends_list: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_list else {}
    return line_of("BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}})


def error_line(code: int, reason: str = "") -> bytes:
    return line_of("ERROR", status(code, reason))


def status(code: int, reason: str = "", **details: Any) -> Tree:
    message = f"{reason or 'something'} happened"
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
