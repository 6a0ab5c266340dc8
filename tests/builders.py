"""Short ways to build the API objects that tests are made of, and what follows from them.

    service("web", port(80, node_port=30080), type="NodePort")
    endpoint_slice("web", "10.42.1.5", endpoint("10.42.2.5", "n2", ready=False))
    table_of(service("web"), endpoint_slice("web", "10.42.1.5"))

Everything lies in namespace "shop" and on node "n1" unless told otherwise; keywords are the fields of the structs in
`kbpf.model.objects`, so that a test can also say what the API would refuse.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kbpf.model.address import Address, family_of
from kbpf.model.events import Event, NodeChanged, ServiceChanged, SliceChanged
from kbpf.model.flow import Flow, Origin
from kbpf.model.names import Protocol, ServiceName, SliceName
from kbpf.model.node import NodeTopology
from kbpf.model.objects import (
    SERVICE_NAME_LABEL,
    ZONE_LABEL,
    EndpointConditions,
    EndpointHints,
    EndpointSlice,
    Hint,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Service,
    ServicePortSpec,
    ServiceSpec,
    ServiceStatus,
    SliceEndpoint,
    SlicePort,
)
from kbpf.model.table import ServiceTable
from kbpf.policy.resolve import resolve
from kbpf.tracking.trackers import Trackers

NAMESPACE = "shop"
NODE_NAME = "n1"
HERE = NodeTopology(NODE_NAME)


def port(number: int, name: str = "", protocol: str = "TCP", node_port: int | None = None) -> ServicePortSpec:
    return ServicePortSpec(name, protocol, number, node_port)


def service(
    name: str = "web",
    *ports: ServicePortSpec,
    namespace: str = NAMESPACE,
    cluster_ips: Sequence[str] = ("10.96.0.10",),
    ingress: Sequence[str | LoadBalancerIngress] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Service:
    """Port 80/TCP without a name unless ports are given; `spec` is any field of ServiceSpec."""
    fields: dict[str, Any] = {
        "type": "ClusterIP",
        "cluster_ip": cluster_ips[0] if cluster_ips else None,
        "cluster_ips": list(cluster_ips),
        "ip_families": [family_of(address).value for address in cluster_ips],
        "ports": list(ports) or [port(80)],
    }
    entries = [LoadBalancerIngress(entry) if isinstance(entry, str) else entry for entry in ingress]
    return Service(
        ObjectMeta(
            name,
            namespace,
            labels=dict(labels) if labels else None,
            annotations=dict(annotations) if annotations else None,
        ),
        ServiceSpec(**(fields | spec)),
        ServiceStatus(LoadBalancerStatus(entries)) if entries else None,
    )


def endpoint(
    address: str,
    node: str | None = NODE_NAME,
    *,
    ready: bool | None = None,
    serving: bool | None = None,
    terminating: bool | None = None,
    zones: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> SliceEndpoint:
    """Conditions that are not given are null, as the API sends them; `zones` and `nodes` are hints."""
    return SliceEndpoint(
        addresses=[address],
        conditions=EndpointConditions(ready, serving, terminating),
        node_name=node,
        hints=EndpointHints([Hint(zone) for zone in zones], [Hint(name) for name in nodes]) if zones or nodes else None,
    )


def draining(address: str, node: str | None = NODE_NAME) -> SliceEndpoint:
    """Terminating and still serving."""
    return endpoint(address, node, ready=False, serving=True, terminating=True)


def unusable(address: str, node: str | None = NODE_NAME) -> SliceEndpoint:
    """Not ready, not serving, not terminating: a pod that starts."""
    return endpoint(address, node, ready=False, serving=False, terminating=False)


def slice_port(number: int | None = 8080, name: str | None = "", protocol: str | None = "TCP") -> SlicePort:
    return SlicePort(name, protocol, number)


def endpoint_slice(
    service_name: str | None = "web",
    *endpoints: str | SliceEndpoint,
    name: str | None = None,
    namespace: str = NAMESPACE,
    ports: Sequence[SlicePort] = (slice_port(),),
    family: str = "IPv4",
    labels: Mapping[str, str] | None = None,
) -> EndpointSlice:
    """A bare string is the address of a ready endpoint on this node. The name follows from Service and family."""
    all_labels = dict(labels or {})
    if service_name is not None:
        all_labels[SERVICE_NAME_LABEL] = service_name
    return EndpointSlice(
        ObjectMeta(name or f"{service_name}-{family.lower()}", namespace, labels=all_labels),
        address_type=family,
        endpoints=[endpoint(each) if isinstance(each, str) else each for each in endpoints],
        ports=list(ports),
    )


def node(
    name: str = NODE_NAME,
    *addresses: str,
    zone: str = "",
    pod_cidrs: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Node:
    """`addresses` are its InternalIPs."""
    all_labels = dict(labels or {}) | ({ZONE_LABEL: zone} if zone else {})
    return Node(
        ObjectMeta(name, labels=all_labels),
        NodeSpec(list(pod_cidrs)),
        NodeStatus([NodeAddress("InternalIP", address) for address in addresses]),
    )


def service_name(text: str) -> ServiceName:
    """`web` or `shop/web`."""
    namespace, _, name = text.rpartition("/")
    return ServiceName(namespace or NAMESPACE, name)


def changed(thing: Service | EndpointSlice | Node) -> Event:
    """The event with which a source delivers the object."""
    metadata = thing.metadata
    if isinstance(thing, Node):
        return NodeChanged(metadata.name or "", thing)
    if isinstance(thing, Service):
        return ServiceChanged(ServiceName(metadata.namespace or "", metadata.name or ""), thing)
    return SliceChanged(SliceName(metadata.namespace or "", metadata.name or ""), thing)


def gone(thing: Service | EndpointSlice | Node) -> Event:
    """The event with which a source says that the object was deleted."""
    event = changed(thing)
    if isinstance(event, ServiceChanged):
        return ServiceChanged(event.name, None)
    if isinstance(event, SliceChanged):
        return SliceChanged(event.name, None)
    assert isinstance(event, NodeChanged)
    return NodeChanged(event.name, None)


def trackers_of(*objects: Service | EndpointSlice, node_name: str = NODE_NAME) -> Trackers:
    """Trackers that have been told of the objects and have synced nothing yet."""
    trackers = Trackers(node_name)
    for thing in objects:
        event = changed(thing)
        assert isinstance(event, ServiceChanged | SliceChanged)
        trackers.update(event)
    return trackers


def table_of(*objects: Service | EndpointSlice, topology: NodeTopology = HERE) -> ServiceTable:
    """The decision of node `topology` about the objects."""
    trackers = trackers_of(*objects, node_name=topology.name)
    table = ServiceTable()
    for name, ports in resolve(trackers.service_names, trackers, topology).items():
        table.replace(name, ports)
    return table


def flow(origin: Origin, source: str, destination: str, number: int = 80, protocol: Protocol = Protocol.TCP) -> Flow:
    return Flow(origin, Address(source), Address(destination), number, protocol)
