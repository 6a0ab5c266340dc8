"""Local-traffic detection: is the source of a packet a pod? (kube-proxy's detectLocalMode)"""

import ipaddress
from enum import Enum

import msgspec

from kbpf.model.address import Address, Family, family_of
from kbpf.model.flow import Flow, Origin


class DetectLocalMode(Enum):
    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


class LocalDetector(msgspec.Struct, frozen=True):
    """Exactly one of `cidr` and `interface` is set; an interface that ends in "+" is a prefix, as iptables writes it.

    Interface detectors see pods of this node only, CIDR detectors whatever the range covers.
    """

    cidr: str | None = None
    interface: str | None = None

    def is_local(self, flow: Flow) -> bool:
        if self.cidr is not None:
            return in_cidr(flow.source, self.cidr)
        return flow.origin is Origin.POD

    def is_for(self, device: str) -> bool:
        """Do only pods send by the device of this name?"""
        if self.interface is None:
            return False
        prefix = self.interface.removesuffix("+")
        return device == self.interface or (prefix != self.interface and device.startswith(prefix))


def in_cidr(address: Address, cidr: str) -> bool:
    network = ipaddress.ip_network(cidr)
    return ipaddress.ip_address(address) in network if network.version == _version(address) else False


def _version(address: Address) -> int:
    return 4 if family_of(address) is Family.IPV4 else 6
