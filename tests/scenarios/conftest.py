"""A running kbpf for the tests of a class, which names its datapath and says what it may hold; see `test_scenarios`."""

import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.conftest import RUN
from tests.kernel.traces import traces
from tests.scenarios.harness.engine import Engine
from tests.scenarios.harness.format import Scenario
from tests.scenarios.harness.kernel import KernelEngine
from tests.scenarios.harness.proxy import KbpfProxy, barrier_slices
from tests.scenarios.harness.world import World


@pytest.fixture(scope="class")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One for all scenarios of a class, `SCENARIOS` of its module; each leaves it as it was."""
    scenarios: Sequence[Scenario] = request.module.SCENARIOS
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    name = request.module.__name__.rpartition("_")[2]
    built = World(f"{RUN}{worker}_{name}", scenarios, barrier_slices())
    yield built
    built.close()


@pytest.fixture(scope="class")
def engine(request: pytest.FixtureRequest, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One running kbpf for all scenarios: starting it takes longer than playing one."""
    held: Callable[[World], list[str]] = request.cls.held
    datapath = request.cls.datapath
    proxy = KbpfProxy(world, datapath, tmp_path_factory.mktemp(datapath), lambda: held(world))
    yield KernelEngine(world, proxy)
    proxy.stop()
    assert traces(world.node) == []
