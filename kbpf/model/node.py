"""What the policy knows of this node."""

import msgspec

from kbpf.model.address import Address, Family, family_of, parse_address, parse_cidr
from kbpf.model.objects import ZONE_LABEL, Node

EXCLUSION_TAINT = "ToBeDeletedByClusterAutoscaler"


class NodeTopology(msgspec.Struct, frozen=True):
    """`zone` is empty when the Node carries no zone label: zone hints are unusable then."""

    name: str
    zone: str = ""


def node_zone(node: Node) -> str:
    return (node.metadata.labels or {}).get(ZONE_LABEL, "")


def is_eligible(node: Node) -> bool:
    """Whether load balancers may send new connections here: not while the node is being removed (KEP-3836)."""
    taints = (node.spec.taints if node.spec else None) or ()
    return not node.metadata.deletion_timestamp and all(taint.key != EXCLUSION_TAINT for taint in taints)


def node_addresses(node: Node) -> tuple[Address, ...]:
    """The primary address, then the first one of the other family: InternalIPs come before ExternalIPs."""
    addresses = (node.status.addresses if node.status else None) or ()
    found: dict[Family, Address] = {}
    for kind in ("InternalIP", "ExternalIP"):
        for entry in addresses:
            if entry.type == kind:
                try:
                    address = parse_address(entry.address or "")
                except ValueError:
                    continue
                found.setdefault(family_of(address), address)
    return tuple(found.values())


def pod_cidrs(node: Node) -> dict[Family, str]:
    """The first pod range of each family."""
    found: dict[Family, str] = {}
    for text in (node.spec.pod_cidrs if node.spec else None) or ():
        try:
            family, cidr = parse_cidr(text)
        except ValueError:
            continue
        found.setdefault(family, cidr)
    return found
