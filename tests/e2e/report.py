"""`docs/conformance.md`: which upstream test passed with which service proxy, made from the outcomes of a run."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.suite import CONTROL_NAMES, Outcome

DOCUMENT = Path(__file__).parents[2] / "docs/conformance.md"
KUBERNETES = "1.37.2"

Outcomes = Mapping[str, Sequence[Outcome]]


def write(outcomes: Outcomes) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text("\n".join([*_head(outcomes), *table(outcomes), *_failures(outcomes), ""]))


def table(outcomes: Outcomes) -> list[str]:
    engines = list(outcomes)
    cells = {(engine, outcome.name): _cell(outcome) for engine in engines for outcome in outcomes[engine]}
    names = sorted({name for _, name in cells})
    rows = [f"| {name} | {' | '.join(cells.get((engine, name), '') for engine in engines)} |" for name in names]
    return [f"| test | {' | '.join(engines)} |", f"|---|{'---|' * len(engines)}", *rows]


def summary(outcomes: Outcomes) -> list[str]:
    """One line for each engine."""
    return [
        f"{engine}: {sum(o.passed for o in found)} of {len(found)} passed, {sum(o.seconds for o in found):.0f} s"
        for engine, found in outcomes.items()
    ]


def circumstances() -> str:
    """On what, when and of which commit."""
    return f"Linux {platform.release()}, {datetime.now(UTC):%Y-%m-%d}, {_commit()}"


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or a copy without its history
        return "commit unknown"
    return f"commit {done.stdout.strip()}"


def _head(outcomes: Outcomes) -> list[str]:
    return [
        "# Conformance",
        "",
        "Kubernetes' own network tests, run by `make e2e` on a cluster of real kubelets; this page is written by the",
        "run. A cell is the seconds that a passed test took; the tests run eight at a time.",
        "",
        f"Kubernetes {KUBERNETES}, three nodes (six for some of Traffic Distribution), {circumstances()}.",
        "",
        *(f"- {line}" for line in summary(outcomes)),
        f"- without a proxy: 0 of {len(CONTROL_NAMES)} control tests passed, as it must be",
        "",
    ]


def _cell(outcome: Outcome) -> str:
    return f"{outcome.seconds:.0f}" if outcome.passed else "**failed**"


def _failures(outcomes: Outcomes) -> list[str]:
    failed = [(engine, outcome) for engine, found in outcomes.items() for outcome in found if not outcome.passed]
    if not failed:
        return []
    lines = [f"- {engine}: {outcome.name}: {outcome.failure}" for engine, outcome in failed]
    return ["", "## Failures", "", *lines]
