"""What kbpf asks an API server for, and how much of it: kube-proxy's selectors, evaluated by the server.

ServiceCIDRs are not among it: of kube-proxy's modes only nftables makes something of them.
"""

import msgspec

from kbpf.model.events import Kind
from kbpf.model.objects import HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL, EndpointSlice, Node, Service
from kbpf.source.object_key import Object


class Resource(msgspec.Struct, frozen=True):
    """An object that ceases to match the selectors arrives as a deletion, one that begins to as an addition."""

    kind: Kind
    path: str
    object_type: type[Object]
    selectors: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return self.path.rpartition("/")[2]


SERVICES = Resource(
    Kind.SERVICE,
    "/api/v1/services",
    Service,
    (("fieldSelector", "spec.clusterIP!=None"), ("labelSelector", f"!{SERVICE_PROXY_NAME_LABEL}")),
)
ENDPOINT_SLICES = Resource(
    Kind.ENDPOINT_SLICE,
    "/apis/discovery.k8s.io/v1/endpointslices",
    EndpointSlice,
    (("labelSelector", f"!{HEADLESS_LABEL}"),),
)


def own_node(name: str) -> Resource:
    return Resource(Kind.NODE, "/api/v1/nodes", Node, (("fieldSelector", f"metadata.name={name}"),))
