"""The comparison that a module's tests share: one API server and the pairs of its settings, started once.

At the end of the run a few words say how much was compared; make test-parity shows them.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.parity.comparison import Comparison
from tests.parity.pair import Setting

DEFAULT = (Setting("defaults"),)
COMPARED, IN_PACKETS = "compared", "in packets"


@pytest.fixture(scope="module")
def shared_comparison(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """With the settings that the module calls `SETTINGS`, or kube-proxy's defaults."""
    compared = Comparison(tmp_path_factory.mktemp("comparison"), getattr(request.module, "SETTINGS", DEFAULT))
    try:
        yield compared
    finally:
        compared.stop()


@pytest.fixture
def comparison(shared_comparison: Comparison, record_property: Callable[[str, object], None]) -> Iterator[Comparison]:
    before = Counter(shared_comparison.compared)
    yield shared_comparison
    record_property(COMPARED, dict(shared_comparison.compared - before))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    compared: Counter[str] = Counter()
    scenarios = 0
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "teardown" else ():
            if name == COMPARED:
                compared.update(value)
            scenarios += name == IN_PACKETS
    if compared:
        terminalreporter.section("parity")
        words = ", ".join(f"{count} {what}" for what, count in compared.items())
        terminalreporter.write_line(f"compared with kube-proxy: {words}; {scenarios} scenarios played on it in packets")
