"""What the policy knows of this node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """`zone` is empty when the Node carries no zone label: zone hints are unusable then."""

    name: str
    zone: str = ""
