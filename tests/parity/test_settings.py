"""Every setting that changes rules, or how they come about, each with a pair of its own, on the same worlds."""

import pytest

from tests.parity.comparison import Comparison
from tests.parity.examples import EXAMPLES
from tests.parity.pair import Setting
from tests.parity.random_world import World

pytestmark = [pytest.mark.root, pytest.mark.parity]

SETTINGS = (
    Setting("manifests", reads_manifests=True),
    Setting("masquerade all", {"masquerade-all": "true"}),
    Setting("masquerade bit", {"iptables-masquerade-bit": "0"}),
    Setting("node CIDR", {"detect-local-mode": "NodeCIDR"}),
    Setting("bridge", {"detect-local-mode": "BridgeInterface", "pod-bridge-interface": "cni0"}),
    Setting("interface prefix", {"detect-local-mode": "InterfaceNamePrefix", "pod-interface-name-prefix": "veth"}),
    Setting("no detector", {"cluster-cidr": None}),
    Setting("IPv4 cluster CIDR", {"cluster-cidr": "10.42.0.0/16"}),
    Setting("no localhost node ports", {"iptables-localhost-nodeports": "false"}),
    Setting("node ports on one network", {"nodeport-addresses": "192.168.60.0/24"}),
    Setting("node ports on many", {"nodeport-addresses": "192.168.0.0/16,127.0.0.0/8,fd60::/64,::1/128"}),
    Setting("node ports nowhere", {"nodeport-addresses": "172.31.0.0/16,fd99::/64"}),
    Setting("primary node ports", {"nodeport-addresses": "primary"}),
    Setting("legacy", backend="legacy"),
    Setting("liberal", sysctls={"net.netfilter.nf_conntrack_tcp_be_liberal": "1"}),
)
SEEDS = range(1000, 1010)
EDITS = 2


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(comparison: Comparison, name: str) -> None:
    for objects in EXAMPLES[name]:
        comparison.show(objects)
        comparison.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_worlds(comparison: Comparison, seed: int) -> None:
    world = World(seed)
    comparison.compared["random worlds"] += 1
    for _ in range(EDITS + 1):
        comparison.show(world.objects.values())
        comparison.check()
        world.edit()
