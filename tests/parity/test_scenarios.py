"""Every scenario with the real kube-proxy: its packets go where the scenario says, and its rules are kbpf's."""

import os
from collections.abc import Callable, Iterator

import pytest

from kbpf.model.flow import Flow, Verdict
from tests.cluster.control_plane import ControlPlane
from tests.conftest import RUN
from tests.parity.comparison import Comparison, Different
from tests.parity.conftest import IN_PACKETS
from tests.parity.wanted import Wanted, load
from tests.scenarios.harness.format import FlowStep, Open, Ping, Scenario
from tests.scenarios.harness.held import rules
from tests.scenarios.harness.kernel import KernelEngine
from tests.scenarios.harness.kube_proxy import KubeProxy
from tests.scenarios.harness.objects import ObjectKey, Tree
from tests.scenarios.harness.play import play
from tests.scenarios.harness.world import World
from tests.scenarios.test_scenarios import SCENARIOS, skip_what_is_not_for

pytestmark = [pytest.mark.root, pytest.mark.parity]
WANTED = load()
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


class RulesEngine:
    """Plays the changes of a scenario and compares the rules after each of them."""

    name = "rules"
    """No engine of the scenario files: what they tell kube-proxy's flows to skip is compared all the same."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.objects: dict[ObjectKey, Tree] = {}
        self.found: list[str] = []
        """What differed after any of the changes."""

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> None:
        everything: dict[ObjectKey, Tree | None] = self.objects | changed
        self.objects = {key: tree for key, tree in everything.items() if tree is not None}
        node = next(tree for key, tree in self.objects.items() if key.kind == "Node")
        self.comparison.show((tree for key, tree in self.objects.items() if key.kind != "Node"), node)
        self.found += self.comparison.differences()

    def flow(self, step: FlowStep, expected: tuple[Verdict, ...]) -> None:
        """Rules say it all."""

    def open(self, step: Open) -> None:
        """No connection is opened."""

    def ping(self, step: Ping) -> None:
        """None is there to be used."""

    def wait(self, seconds: float) -> None:
        """Time changes no rule."""

    def untouched(self, flows: tuple[Flow, ...]) -> None:
        """The rules were compared after the last change."""

    def leftovers(self) -> str:
        return ""


def test_every_wanted_difference_has_a_scenario() -> None:
    assert {each.scenario for each in WANTED.values() if each.scenario} <= {scenario.name for scenario in SCENARIOS}


class TestRules:
    @every_scenario
    def test_kbpf_writes_what_kube_proxy_writes(self, comparison: Comparison, scenario: Scenario) -> None:
        skip_what_is_not_for("kube-proxy", scenario)
        wanted = WANTED.get(scenario.name, Wanted("", scenario.name))
        if wanted.chance:
            pytest.skip(wanted.why)
        engine = RulesEngine(comparison)
        play(scenario, engine)
        if surprises := wanted.surprises(engine.found):
            raise Different("\n".join(surprises))
        assert wanted.missing(engine.found) == [], "listed in differences.yaml, but it does not occur any more"


@pytest.fixture(scope="class")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelEngine]:
    """One world and one kube-proxy for all scenarios; each leaves them as they were."""
    folder = tmp_path_factory.mktemp("kube-proxy")
    world = World(f"{RUN}{os.environ.get('PYTEST_XDIST_WORKER', '')}_control", SCENARIOS)
    try:
        control_plane = ControlPlane(folder)
        try:
            proxy = KubeProxy(world, control_plane, folder, lambda: rules(world))
            yield KernelEngine(world, proxy)
            proxy.stop()
        finally:
            control_plane.stop()
    finally:
        world.close()


class TestPackets:
    @every_scenario
    def test_kube_proxy_does_what_the_scenario_says(
        self, scenario: Scenario, engine: KernelEngine, record_property: Callable[[str, object], None]
    ) -> None:
        skip_what_is_not_for(engine.name, scenario)
        for sentence in play(scenario, engine):
            print(sentence)
        record_property(IN_PACKETS, scenario.name)
