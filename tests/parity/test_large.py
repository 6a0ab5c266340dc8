"""A large cluster: above a thousand endpoints kube-proxy writes fewer comments, each rule when it is written anyway."""

import pytest

from tests.cluster.api import Tree
from tests.parity.comparison import Comparison
from tests.parity.objects import endpoint, endpoint_slice, port, service
from tests.parity.pair import Setting
from tests.parity.rules import without_unused_chains

pytestmark = [pytest.mark.root, pytest.mark.parity]

# No periodic full sync, which would write all rules anew. The price: kube-proxy leaves the chains of endpoints that are
# gone, for it looks for those once a period in a large cluster.
SETTINGS = (Setting("large", {"iptables-sync-period": "1h"}),)
NOT_READY: Tree = {"ready": False}
PORTS = [port(8080)]


def crowd(number: int, size: int, unready: int = 0) -> list[Tree]:
    """A Service with so many endpoints, the last ones of which are not ready."""
    addresses = [f"10.42.{1 + number}.{host}" for host in range(1, size + 1)]
    endpoints = [
        endpoint(address, conditions=NOT_READY if index >= size - unready else None)
        for index, address in enumerate(addresses)
    ]
    name = f"crowd/c{number}"
    return [service(name, f"10.96.1.{number}", port(80)), endpoint_slice(name, PORTS, *endpoints)]


def test_comments_go_and_come_with_the_number_of_endpoints(comparison: Comparison) -> None:
    crowds = [crowd(number, 100, unready=40) for number in range(9)]
    # The marker has one endpoint, so this makes a thousand.
    sizes = [99, 100, 101, 90, 99]
    for size in sizes:
        comparison.show([tree for trees in [*crowds, crowd(9, size, unready=size)] for tree in trees])
        comparison.check(f"{size} in the last", without_unused_chains)


def test_services_written_in_a_large_cluster_have_no_comments(comparison: Comparison) -> None:
    # Large by one object: of many, those that a sync took before the thousandth endpoint would have comments.
    endpoints = [endpoint(f"10.42.{1 + index // 250}.{1 + index % 250}") for index in range(1000)]
    large = [service("crowd/large", "10.96.1.1", port(80)), endpoint_slice("crowd/large", PORTS, *endpoints)]
    comparison.show(large)
    comparison.check(view=without_unused_chains)
    crowds = [crowd(number, 20) for number in range(5, 8)]
    while crowds:
        comparison.show([*large, *(tree for trees in crowds for tree in trees)])
        comparison.check(f"{len(crowds)} more", without_unused_chains)
        crowds.pop()
    for ruleset in map(without_unused_chains, comparison.pairs[0].read("IPv4")):
        backends = [chain for (_, name), chain in ruleset.items() if name.startswith("KUBE-SEP-")]
        rules = [rule for chain in backends for rule in chain.rules]
        assert len(rules) > 2000
        assert not any("crowd/" in rule for rule in rules)
