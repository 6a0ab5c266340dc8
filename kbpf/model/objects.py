"""API objects as they arrive: only the fields that a service proxy reads, decoded by msgspec.

Everything may be null or absent; meaning is given to them in `tracking`. Unknown fields are skipped unbuilt.
"""

import msgspec

SERVICE_PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
DATAPATH_ANNOTATION = "kbpf.io/datapath"
"""Of a Service. `iptables`: its traffic is left to rules, even where eBPF runs; `auto` is as good as none."""
HEADLESS_LABEL = "service.kubernetes.io/headless"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
ZONE_LABEL = "topology.kubernetes.io/zone"
TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"


class ApiObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of the structs below: camelCase on the wire, no cycles, so the collector need not look at them."""


class ObjectMeta(ApiObject, frozen=True):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ServicePortSpec(ApiObject, frozen=True):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None
    node_port: int | None = None


class ClientIPConfig(ApiObject, frozen=True):
    timeout_seconds: int | None = None


class SessionAffinityConfig(ApiObject, frozen=True):
    client_ip: ClientIPConfig | None = msgspec.field(default=None, name="clientIP")


class ServiceSpec(ApiObject, frozen=True):
    type: str | None = None
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    ip_families: list[str] | None = None
    ports: list[ServicePortSpec] | None = None
    external_ips: list[str] | None = msgspec.field(default=None, name="externalIPs")
    session_affinity: str | None = None
    session_affinity_config: SessionAffinityConfig | None = None
    external_traffic_policy: str | None = None
    internal_traffic_policy: str | None = None
    health_check_node_port: int | None = None
    load_balancer_source_ranges: list[str] | None = None


class LoadBalancerIngress(ApiObject, frozen=True):
    ip: str | None = None
    ip_mode: str | None = None


class LoadBalancerStatus(ApiObject, frozen=True):
    ingress: list[LoadBalancerIngress] | None = None


class ServiceStatus(ApiObject, frozen=True):
    load_balancer: LoadBalancerStatus | None = None


class Service(ApiObject, frozen=True):
    metadata: ObjectMeta
    spec: ServiceSpec | None = None
    status: ServiceStatus | None = None


class EndpointConditions(ApiObject, frozen=True):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Hint(ApiObject, frozen=True):
    name: str | None = None


class EndpointHints(ApiObject, frozen=True):
    for_zones: list[Hint] | None = None
    for_nodes: list[Hint] | None = None


class SliceEndpoint(ApiObject, frozen=True):
    addresses: list[str] | None = None
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    hints: EndpointHints | None = None


class SlicePort(ApiObject, frozen=True):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class EndpointSlice(ApiObject, frozen=True):
    metadata: ObjectMeta
    address_type: str | None = None
    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


class NodeAddress(ApiObject, frozen=True):
    type: str | None = None
    address: str | None = None


class NodeStatus(ApiObject, frozen=True):
    addresses: list[NodeAddress] | None = None


class Taint(ApiObject, frozen=True):
    key: str | None = None


class NodeSpec(ApiObject, frozen=True):
    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")
    taints: list[Taint] | None = None


class Node(ApiObject, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
