"""Outcomes as people read them: a table in Markdown, and the page docs/distributions.md around it."""

import os
from datetime import datetime

from tests.distributions.outcome import Outcome

HEAD = """# Distributions

kbpf's own tests (`make test`: unit, properties, contracts, scenarios, kernel) in the root file system of each
distribution, with its Python, BCC, compiler and iptables. The kernel is the machine's. `make test-distributions` wrote
this page.
"""


def table(outcomes: list[Outcome]) -> str:
    lines = ["| distribution | with | passed | failed | skipped |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, outcomes), *_remarks(outcomes)])


def page(outcomes: list[Outcome], at: datetime) -> str:
    return f"{HEAD}\nLinux {os.uname().release}, {at:%Y-%m-%d}.\n\n{table(outcomes)}\n"


def _row(outcome: Outcome) -> str:
    skipped = outcome.skipped.total()
    numbers = f"{outcome.passed:,} | {len(outcome.failed)} | {skipped}" if outcome.versions else "– | – | –"
    return f"| {outcome.distribution} | {', '.join(outcome.versions) or outcome.problem} | {numbers} |"


def _remarks(outcomes: list[Outcome]) -> list[str]:
    """Below the table: failures by name, and what the skipped tests lacked."""
    remarks = []
    for outcome in outcomes:
        if outcome.versions and outcome.problem:
            remarks.append(f"- {outcome.distribution}: {outcome.problem}")
        remarks += [f"- {outcome.distribution}: failed: {name}" for name in outcome.failed]
        remarks += [f"- {outcome.distribution}: {number} skipped: {why}" for why, number in outcome.skipped.items()]
    return ["", *remarks] if remarks else []
