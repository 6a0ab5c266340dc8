"""Random clusters and flows: the reference model, both traces, and real packets through both datapaths say the same.

2,000 pairs of a cluster and a flow are decided; 200 of them are sent. A difference is a bug, or it stands among the
deviations in README.md, where the harness knows it. A failure names its scenario: `random-17` is `random_scenario(17)`.
"""

from collections.abc import Callable

import pytest

from kbpf.model.flow import Action
from tests.scenarios.harness.engine import Engine
from tests.scenarios.harness.format import FlowStep
from tests.scenarios.harness.held import rows_and_rules, rules
from tests.scenarios.harness.play import play
from tests.scenarios.harness.pure import ReferenceEngine
from tests.scenarios.harness.random_scenario import FLOWS_A_SCENARIO, random_scenario
from tests.scenarios.harness.traces import EbpfTraceEngine, IptablesTraceEngine

PAIRS, SENT = 2000, 200
SEEDS, SENT_SEEDS = range(PAIRS // FLOWS_A_SCENARIO), range(SENT // FLOWS_A_SCENARIO)
PART = 20
"""Scenarios of one test: enough for several workers."""
TRACES: tuple[Callable[[], Engine], ...] = (IptablesTraceEngine, EbpfTraceEngine)


@pytest.mark.parametrize("first", SEEDS[::PART])
def test_the_traces_decide_as_the_reference_does(first: int) -> None:
    for seed in range(first, first + PART):
        scenario = random_scenario(seed)
        for engine in (ReferenceEngine, *TRACES):
            assert play(scenario, engine()) == []


def test_the_flows_are_of_every_kind() -> None:
    """A generator that no longer makes some of them would show nothing."""
    steps = [step for seed in SEEDS for step in random_scenario(seed).steps if isinstance(step, FlowStep)]
    assert len(steps) == PAIRS
    assert len({step.flow for step in steps}) > PAIRS // 10
    for origin in ("pod", "host", "ext"):
        of_origin = [step for step in steps if step.flow.startswith(origin)]
        assert len(of_origin) > PAIRS // 10
        for marker in (":80/", "[", "/udp", "/tcp", "203.0.113.", "10.96.", ":303", ":304"):
            assert any(marker in step.flow.partition(" -> ")[2] for step in of_origin), (origin, marker)
    for action in Action:
        assert sum(step.wanted.action is action for step in steps) > PAIRS // 100, action
    assert sum(bool(step.sticky) for step in steps) > PAIRS // 50


def test_the_same_number_gives_the_same_scenario() -> None:
    assert random_scenario(7) == random_scenario(7)
    assert random_scenario(7) != random_scenario(8)


# -- real packets ----------------------------------------------------------------------------------------------------

SCENARIOS = [random_scenario(seed) for seed in SENT_SEEDS]
sent = pytest.mark.parametrize("seed", SENT_SEEDS)


@pytest.mark.root
class TestIptables:
    datapath = "iptables"
    held = staticmethod(rules)

    @sent
    def test_packets_do_as_the_reference_says(self, seed: int, engine: Engine) -> None:
        play(SCENARIOS[seed], engine)


@pytest.mark.root
class TestEbpf:
    datapath = "ebpf"
    held = staticmethod(rows_and_rules)

    @sent
    def test_packets_do_as_the_reference_says(self, seed: int, engine: Engine) -> None:
        play(SCENARIOS[seed], engine)
