"""What every kind of test shares: the marker `root`, golden files, and the check that nothing is left on the machine.

A golden file holds text that people read in a review: rules, dumps, tables. `make golden` rewrites them all.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbpf.demo.remains import remains, remove, tags

GOLDEN = Path(__file__).parent / "golden"
# All worlds of one run of pytest carry it; workers inherit it from the process that started them.
RUN = os.environ.setdefault("KBPF_TEST_RUN", f"kbpftest{os.getpid()}_")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if marker := item.get_closest_marker("kernels"):
            # Into the report in XML, from which docs/kernels.md is made.
            item.user_properties.append(("datapath", marker.args[0]))
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Worlds end with their tests. One that did not, because a test was killed or forgot it, ends here and is told."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    left = remains(RUN)
    for tag in tags(RUN):
        remove(tag)
    if left:
        print("\nleft by tests, and removed now:", *left, sep="\n  ")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("iptables/affinity.rules", text)` compares with tests/golden/iptables/affinity.rules."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} does not exist: `make golden` writes it"
        assert text == path.read_text()

    return compare
