"""Short ways to write the API objects of a comparison by hand."""

from typing import Any

from tests.cluster.api import Tree

DRAINING: Tree = {"ready": False, "serving": True, "terminating": True}


def port(number: int, name: str = "", protocol: str = "TCP", **more: Any) -> Tree:
    return {"name": name, "protocol": protocol, "port": number} | more


def service(name: str, address: str, *ports: Tree, ingress: tuple[Tree, ...] = (), **spec: Any) -> Tree:
    """`name` is `namespace/name`; `spec` are fields of the Service's spec in the API's own spelling."""
    namespace, _, own = name.partition("/")
    family = "IPv6" if ":" in address else "IPv4"
    fields: Tree = {
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": [family],
        "ipFamilyPolicy": "SingleStack",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": own},
        "spec": fields | {"ports": list(ports)} | spec,
        "status": {"loadBalancer": {"ingress": list(ingress)} if ingress else {}},
    }


def endpoint_slice(name: str, ports: list[Tree], *endpoints: Tree, own: str = "", family: str = "IPv4") -> Tree:
    """`name` is that of the Service, `own` what distinguishes the slice from others of the same Service."""
    namespace, _, service_name = name.partition("/")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{service_name}-{family.lower()}{own}",
            "labels": {"kubernetes.io/service-name": service_name},
        },
        "addressType": family,
        "ports": ports,
        "endpoints": list(endpoints),
    }


def endpoint(address: str, node: str | None = None, conditions: Tree | None = None) -> Tree:
    """Ready, and on the node whose pods have such addresses, unless told otherwise."""
    where = node or f"n{address.split(':')[1] if ':' in address else address.split('.')[2]}"
    return {"addresses": [address], "conditions": conditions or {"ready": True}, "nodeName": where}
