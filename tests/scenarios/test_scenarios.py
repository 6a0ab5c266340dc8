"""Every scenario file on every engine; `pytest -k ebpf-kernel-affinity_timeout` runs one of them."""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.scenarios.harness.format import Scenario, load
from tests.scenarios.harness.play import play
from tests.scenarios.harness.pure import ReferenceEngine

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
SCENARIOS = [load(path) for path in FILES]
PURE = {engine.name: engine for engine in (ReferenceEngine,)}


def cases(engine: str) -> list[ParameterSet]:
    return [pytest.param(engine, scenario, id=f"{engine}-{scenario.name}") for scenario in SCENARIOS]


@pytest.mark.parametrize(("engine", "scenario"), [case for engine in PURE for case in cases(engine)])
def test_decides(engine: str, scenario: Scenario) -> None:
    if reason := scenario.reason_to_skip(engine):
        pytest.skip(reason)
    for sentence in play(scenario, PURE[engine]()):
        print(sentence)
