"""One port of a Service in one IP family, as read from the API; endpoints and this node play no part in it yet."""

import msgspec

from kbpf.model.address import Address, Family
from kbpf.model.names import ServicePortName


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    name: ServicePortName
    family: Family
    cluster_ip: Address
    port: int
    node_port: int = 0
    """0 means none. The Service's type is not consulted: a node port value is enough, as in kube-proxy."""
    external_ips: tuple[Address, ...] = ()
    load_balancer_ips: tuple[Address, ...] = ()
    """Ingress addresses whose ipMode is VIP or unset (KEP-1860)."""
    source_ranges: tuple[str, ...] = ()
    """Canonical CIDRs of this family; empty means that every source is allowed."""
    affinity_timeout_s: int = 0
    """0 means no session affinity."""
    external_policy_local: bool = False
    internal_policy_local: bool = False
    health_check_node_port: int = 0
    wants_rules: bool = False
    """It asked to be balanced by iptables alone, even where eBPF runs."""

    @property
    def is_externally_accessible(self) -> bool:
        return bool(self.node_port or self.load_balancer_ips or self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        return not self.internal_policy_local or self.is_externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        return self.internal_policy_local or (self.external_policy_local and self.is_externally_accessible)
