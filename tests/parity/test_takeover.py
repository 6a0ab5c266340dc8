"""Each proxy takes over a node from the other one, although the objects have changed meanwhile."""

import pytest

from tests.parity.comparison import Comparison
from tests.parity.random_world import World

pytestmark = [pytest.mark.root, pytest.mark.parity]


def test_what_the_other_one_has_left_is_adopted_and_corrected(comparison: Comparison) -> None:
    world = World(2000)
    comparison.show(world.objects.values())
    comparison.check("at the start")
    for turn in range(4):
        world.edit()
        comparison.change_places(world.objects.values())
        comparison.check(f"after turn {turn}")
