"""From flattened entries to API objects, as an API server would have stored them: defaults filled in.

The result is plain trees: the pure engines decode them like the API source does, the kernel engines write them as
manifests.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kbpf.model.address import family_of
from tests.scenarios.harness.cluster import NODE_ADDRESSES, NODE_NAME, ZONES, generated_addresses, node_of_generated
from tests.scenarios.harness.format import (
    EndpointEntry,
    IngressEntry,
    Names,
    NodeEntry,
    Objects,
    ServiceEntry,
    SliceEntry,
)

Tree = dict[str, Any]


class ObjectKey(NamedTuple):
    kind: str
    namespace: str
    name: str


class UnknownObject(Exception):
    pass


class Cluster:
    """The objects that exist at one moment of a scenario, by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Tree] = {}

    def apply(self, entries: Objects) -> dict[ObjectKey, Tree | None]:
        """The objects that are new or different; the answer has the form of `delete`'s."""
        changed: dict[ObjectKey, Tree | None] = {}
        for tree in expand(entries):
            key = key_of(tree)
            if key in changed:
                raise UnknownObject(f"{key.kind} {key.namespace}/{key.name} is given twice; name the slices")
            changed[key] = self.objects[key] = tree
        return changed

    def delete(self, names: Names) -> dict[ObjectKey, Tree | None]:
        keys = [ObjectKey("Service", *name.split("/")) for name in names.services]
        keys += [ObjectKey("EndpointSlice", *name.split("/")) for name in names.slices]
        for key in keys:
            if self.objects.pop(key, None) is None:
                raise UnknownObject(f"{key.kind} {key.namespace}/{key.name} is not there to be deleted")
        return dict.fromkeys(keys)

    def delete_all(self) -> dict[ObjectKey, Tree | None]:
        """Services and slices; the node stays, as it was at the start."""
        changed: dict[ObjectKey, Tree | None] = dict.fromkeys(key for key in self.objects if key.kind != "Node")
        self.objects.clear()
        node = node_object(NodeEntry(zone=ZONES[NODE_NAME]))
        return changed | {key_of(node): node}


def key_of(tree: Tree) -> ObjectKey:
    metadata = tree["metadata"]
    return ObjectKey(tree["kind"], metadata.get("namespace", ""), metadata["name"])


def expand(entries: Objects) -> Iterator[Tree]:
    if entries.node is not None:
        yield node_object(entries.node)
    yield from map(service_object, entries.services)
    yield from map(slice_object, entries.slices)
    yield from entries.objects


def service_object(entry: ServiceEntry) -> Tree:
    cluster_ips = entry.clusterIPs or [address for address in (entry.clusterIP,) if address is not None]
    families = [family_of(address).value for address in cluster_ips if address not in ("", "None")]
    spec: Tree = {
        "type": entry.type,
        "clusterIP": cluster_ips[0] if cluster_ips else None,
        "clusterIPs": cluster_ips,
        "ipFamilies": families if entry.ipFamilies is None else entry.ipFamilies,
        "ipFamilyPolicy": "RequireDualStack" if len(families) > 1 else None,
        "ports": [_without_defaults(port) for port in entry.ports],
        "sessionAffinity": entry.sessionAffinity,
        "internalTrafficPolicy": entry.internalTrafficPolicy or "Cluster",
        "externalName": entry.externalName,
        "externalIPs": entry.externalIPs,
        "externalTrafficPolicy": entry.externalTrafficPolicy,
        "healthCheckNodePort": entry.healthCheckNodePort,
        "loadBalancerSourceRanges": entry.loadBalancerSourceRanges,
        "publishNotReadyAddresses": entry.publishNotReadyAddresses,
    }
    if entry.sessionAffinity == "ClientIP":
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": entry.affinityTimeout or 10800}}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": entry.ns, "name": entry.name, "labels": entry.labels, **_annotations(entry)},
        "spec": {field: value for field, value in spec.items() if value not in (None, [], False)},
        "status": {"loadBalancer": {"ingress": [_ingress(ingress) for ingress in entry.lbIngress]}},
    }


def _annotations(entry: ServiceEntry) -> Tree:
    return {"annotations": entry.annotations} if entry.annotations else {}


def _without_defaults(port: Any) -> Tree:
    fields = {name: getattr(port, name) for name in port.__struct_fields__}
    return {name: value for name, value in fields.items() if value not in (None, 0)}


def _ingress(entry: str | IngressEntry) -> Tree:
    if isinstance(entry, str):
        return {"ip": entry, "ipMode": "VIP"}
    return {name: value for name in entry.__struct_fields__ if (value := getattr(entry, name)) is not None}


def slice_object(entry: SliceEntry) -> Tree:
    namespace, _, service = entry.service.partition("/")
    generated = [
        EndpointEntry(ip=address, node=node_of_generated(index))
        for index, address in enumerate(generated_addresses(entry.endpointsGenerated))
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": entry.name or service,
            "labels": {"kubernetes.io/service-name": service} | entry.labels,
        },
        "addressType": entry.family,
        "ports": [{"name": port.name, "protocol": port.protocol, "port": port.port} for port in entry.ports],
        "endpoints": [_endpoint(endpoint) for endpoint in entry.endpoints + generated],
    }


def _endpoint(entry: EndpointEntry) -> Tree:
    conditions = {name: getattr(entry, name) for name in ("ready", "serving", "terminating")}
    hints = {
        field: [{"name": name} for name in names]
        for field, names in (("forZones", entry.hints), ("forNodes", entry.nodeHints))
        if names
    }
    tree: Tree = {
        "addresses": [entry.ip],
        "conditions": {name: value for name, value in conditions.items() if value is not None},
        "nodeName": entry.node,
        "zone": entry.zone,
        "hints": hints,
    }
    return {field: value for field, value in tree.items() if value not in (None, {})}


def node_object(entry: NodeEntry) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE_NAME, "labels": {"topology.kubernetes.io/zone": entry.zone} if entry.zone else {}},
        "spec": {"podCIDRs": ["10.42.1.0/24", "fd42:1::/64"]},
        "status": {"addresses": [{"type": "InternalIP", "address": each} for each in NODE_ADDRESSES.values()]},
    }
