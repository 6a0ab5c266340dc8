"""One real API server for the tests of a module, and worlds whose proxies it feeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.kernel.world import World, standing_world


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with standing_world(tmp_path) as built:
        yield built
