"""Which backend lists a service port needs at all (kube-proxy's "uses cluster list" and "uses local list")."""

import pytest

from kbpf.model.address import Address, Family
from kbpf.model.names import Protocol, ServiceName, ServicePortName
from kbpf.model.service_port import ServicePort

NAME = ServicePortName(ServiceName("shop", "web"), "", Protocol.TCP)


@pytest.mark.parametrize("internal_local", [False, True])
@pytest.mark.parametrize("external_local", [False, True])
@pytest.mark.parametrize("reachable_by", ["nothing", "node port", "load balancer IP", "external IP"])
def test_the_lists_a_port_uses_follow_its_policies(reachable_by: str, external_local: bool, internal_local: bool):
    port = ServicePort(
        NAME,
        Family.IPV4,
        Address("10.96.0.10"),
        80,
        node_port=30080 if reachable_by == "node port" else 0,
        external_ips=(Address("203.0.113.1"),) if reachable_by == "external IP" else (),
        load_balancer_ips=(Address("203.0.113.2"),) if reachable_by == "load balancer IP" else (),
        external_policy_local=external_local,
        internal_policy_local=internal_local,
    )
    is_reachable = reachable_by != "nothing"
    assert port.is_externally_accessible == is_reachable
    assert port.uses_cluster_endpoints == (not internal_local or is_reachable)
    assert port.uses_local_endpoints == (internal_local or (external_local and is_reachable))
