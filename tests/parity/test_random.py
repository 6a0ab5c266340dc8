"""Random worlds that mix every feature, and random edits to them, so that partial syncs are compared as well."""

import pytest

from tests.parity.comparison import Comparison
from tests.parity.node import node_in_zone
from tests.parity.random_world import World

pytestmark = [pytest.mark.root, pytest.mark.parity]

SETS = 300
EDITS = 3


@pytest.mark.parametrize("seed", range(SETS))
def test_kbpf_writes_what_kube_proxy_writes(comparison: Comparison, seed: int) -> None:
    world = World(seed)
    comparison.compared["random worlds"] += 1
    history = ["all objects"]
    for _ in range(EDITS + 1):
        comparison.show(world.objects.values(), node_in_zone(world.zone))
        comparison.check("; ".join(history))
        history.append(world.edit())
