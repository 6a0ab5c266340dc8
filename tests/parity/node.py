"""The node that both proxies believe to be: n1 of the scenarios' cluster, and the flags that say so."""

from tests.cluster.api import Tree

NODE_NAME = "n1"
ADDRESSES = ("192.168.60.11/24", "192.168.61.11/24", "fd60::11/64")
CLUSTER_CIDRS = "10.42.0.0/16,fd42::/16"

NODE: Tree = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": NODE_NAME, "labels": {"topology.kubernetes.io/zone": "za"}},
    "spec": {"podCIDR": "10.42.1.0/24", "podCIDRs": ["10.42.1.0/24", "fd42:1::/64"]},
    "status": {
        "addresses": [
            {"type": "InternalIP", "address": "192.168.60.11"},
            {"type": "InternalIP", "address": "fd60::11"},
        ]
    },
}

# Short periods: a step is done when both have synced.
FLAGS: dict[str, str | None] = {
    "hostname-override": NODE_NAME,
    "cluster-cidr": CLUSTER_CIDRS,
    "iptables-min-sync-period": "50ms",
    "iptables-sync-period": "2s",
}


def node_in_zone(zone: str) -> Tree:
    metadata = NODE["metadata"] | {"labels": {"topology.kubernetes.io/zone": zone} if zone else {}}
    return NODE | {"metadata": metadata}
