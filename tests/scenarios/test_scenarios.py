"""Every scenario file on every engine; `pytest -k ebpf-kernel-affinity_timeout` runs one of them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RUN
from tests.kernel.traces import traces
from tests.scenarios.harness.engine import Engine
from tests.scenarios.harness.format import Scenario, load
from tests.scenarios.harness.held import rows_and_rules, rules
from tests.scenarios.harness.kernel import KernelEngine
from tests.scenarios.harness.play import play
from tests.scenarios.harness.proxy import KbpfProxy, barrier_slices
from tests.scenarios.harness.pure import ReferenceEngine
from tests.scenarios.harness.traces import EbpfTraceEngine, IptablesTraceEngine
from tests.scenarios.harness.world import World

SCENARIOS = [load(path) for path in sorted(Path(__file__).parent.glob("*.yaml"))]
PURE: dict[str, Callable[[], Engine]] = {
    "reference": ReferenceEngine,
    "iptables-trace": IptablesTraceEngine,
    "ebpf-trace": EbpfTraceEngine,
}


def on(*engines: str) -> pytest.MarkDecorator:
    cases = [(engine, scenario) for engine in engines for scenario in SCENARIOS]
    ids = [f"{engine}-{scenario.name}" for engine, scenario in cases]
    return pytest.mark.parametrize(("name", "scenario"), cases, ids=ids)


def check(scenario: Scenario, engine: Engine) -> None:
    for sentence in play(scenario, engine):
        print(sentence)


def skip_what_is_not_for(name: str, scenario: Scenario) -> None:
    if reason := scenario.reason_to_skip(name):
        pytest.skip(reason)


@on(*PURE)
def test_decides(name: str, scenario: Scenario) -> None:
    skip_what_is_not_for(name, scenario)
    check(scenario, PURE[name]())


@pytest.fixture(scope="class")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all scenarios of an engine; each leaves it as it was."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    built = World(f"{RUN}{worker}_scenarios", SCENARIOS, barrier_slices())
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


# A class for each: workers of pytest-xdist divide the tests by class, and each class has one world and one kbpf.
@pytest.mark.root
class TestIptables:
    datapath = "iptables"
    held = staticmethod(rules)

    @on("iptables-kernel")
    def test_runs(self, name: str, scenario: Scenario, engine: Engine) -> None:
        skip_what_is_not_for(name, scenario)
        check(scenario, engine)


@pytest.mark.root
class TestEbpf:
    datapath = "ebpf"
    held = staticmethod(rows_and_rules)

    @on("ebpf-kernel")
    def test_runs(self, name: str, scenario: Scenario, engine: Engine) -> None:
        skip_what_is_not_for(name, scenario)
        check(scenario, engine)
