"""Worlds for kernel tests: `world` is fresh for each test, `shared_world` for each module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.world import World, standing_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with standing_world(tmp_path) as built:
        yield built


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with standing_world(tmp_path_factory.mktemp("world")) as built:
        yield built
