"""What the rules depend on besides the table. The composition root makes one from the configuration and the node."""

from collections.abc import Mapping

import msgspec

from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector

LARGE_CLUSTER_ENDPOINTS = 1000


class IptablesSettings(msgspec.Struct, frozen=True, kw_only=True):
    masquerade_bit: int = 14
    masquerade_all: bool = False
    detectors: Mapping[Family, LocalDetector] = msgspec.field(default_factory=dict)
    """A family without one: its pods count as outside, and ClusterIP traffic is not masqueraded."""
    node_ips: Mapping[Family, Address] = msgspec.field(default_factory=dict)
    node_port_addresses: Mapping[Family, tuple[Address, ...]] = msgspec.field(default_factory=dict)
    """The local addresses with open node ports; a family that is absent has them on every local address."""
    localhost_node_ports: bool = True
    """Effective value: on only if node ports are open on a loopback address at all. IPv4 alone can do it."""
    conntrack_liberal: bool = False
    """Out-of-window packets are not INVALID then, and the rule that drops those is left out."""
    random_fully: bool = True
    is_residue: bool = False
    """These rules stand beneath eBPF, where most packets of the node need none of them: they cost those the least."""
    has_counters: bool = False
    """Rules count in named counters of the kernel (nfacct). Found out by the backend for each family."""
    large_cluster_endpoints: int = LARGE_CLUSTER_ENDPOINTS
    """Above this many endpoints, ready or not, the comments of balancing rules are left out."""
    sync_period_s: float = 30.0
    """In large clusters, the least time between two deletions of chains that nobody uses any more."""

    @property
    def mark(self) -> str:
        return f"0x{1 << self.masquerade_bit:08x}"

    def has_localhost_node_ports(self, family: Family) -> bool:
        return self.localhost_node_ports and family is Family.IPV4
