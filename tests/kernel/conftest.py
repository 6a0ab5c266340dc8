"""Worlds for kernel tests: `world` is fresh for each test, `shared_world` for each module."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import RUN
from tests.kernel.world import World

_numbers = itertools.count()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with _world(tmp_path) as built:
        yield built


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with _world(tmp_path_factory.mktemp("world")) as built:
        yield built


@contextmanager
def _world(directory: Path) -> Iterator[World]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    world = World(f"{RUN}{worker}_{next(_numbers)}", directory)
    try:
        world.create()
        yield world
    finally:
        world.close()
