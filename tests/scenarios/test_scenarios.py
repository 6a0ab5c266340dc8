"""Every scenario file on every engine; `pytest -k ebpf-kernel-affinity_timeout` runs one of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.scenarios.harness.engine import Engine
from tests.scenarios.harness.format import Scenario, load
from tests.scenarios.harness.held import rows_and_rules, rules
from tests.scenarios.harness.play import play
from tests.scenarios.harness.pure import ReferenceEngine
from tests.scenarios.harness.traces import EbpfTraceEngine, IptablesTraceEngine

SCENARIOS = [load(path) for path in sorted(Path(__file__).parent.glob("*.yaml"))]
PURE: dict[str, Callable[[], Engine]] = {
    "reference": ReferenceEngine,
    "iptables-trace": IptablesTraceEngine,
    "ebpf-trace": EbpfTraceEngine,
}


# These show each kind of frontend and policy; on other kernels they stand for all.
ON_EVERY_KERNEL = frozenset(
    {
        "affinity_tcp",
        "clusterip_balance",
        "dual_stack",
        "endpoint_replaced_udp",
        "external_ip",
        "external_traffic_policy_local",
        "hairpin",
        "load_balancer_ip",
        "no_endpoints",
        "node_port",
        "service_removed_while_connected",
        "source_ranges",
        "terminating_fallback",
        "udp_balance",
        "v4_mapped",
    }
)


def on(*engines: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "scenario"), [_case(e, s) for e in engines for s in SCENARIOS])


def _case(engine: str, scenario: Scenario) -> ParameterSet:
    is_everywhere = engine.endswith("-kernel") and scenario.name in ON_EVERY_KERNEL
    marks = [pytest.mark.kernels(engine.removesuffix("-kernel"))] if is_everywhere else []
    return pytest.param(engine, scenario, id=f"{engine}-{scenario.name}", marks=marks)


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
