"""A figure and the most that it may be: what the benches end with."""

import sys
from collections.abc import Iterable, Set
from enum import Enum
from typing import NamedTuple

from rich.console import Console

TOLERANCE = 0.005
"""How far a control may be from one."""
MISSED_STATUS, NOISY_STATUS = 1, 3


class Verdict(Enum):
    MET = "[green]pass[/]"
    MISSED = "[red]FAIL[/]"
    NOISY = "[yellow]too noisy to judge[/]"


class Goal(NamedTuple):
    what: str
    measured: float
    limit: float
    control: float = 1.0
    """The peer of a ratio against itself in the same run, where that was measured: one, but for noise."""

    @property
    def verdict(self) -> Verdict:
        """Of a noisy run only what so much noise cannot have made."""
        noise = abs(self.control - 1)
        error = noise if noise > TOLERANCE else 0.0
        if self.measured * (1 + error) <= self.limit:
            return Verdict.MET
        return Verdict.MISSED if self.measured * (1 - error) > self.limit else Verdict.NOISY


def judge(goals: Iterable[Goal], console: Console) -> None:
    """A line for each goal; exits with status 1 when one is missed, else with 3 when one cannot be judged."""
    verdicts = set()
    for goal in goals:
        verdicts.add(goal.verdict)
        words = f"{goal.what}: {goal.measured:.4g}, goal at most {goal.limit}"
        control = f", control {goal.control:.3f}" if goal.verdict is Verdict.NOISY else ""
        console.print(f"{goal.verdict.value} {words}{control}", highlight=False)
    sys.exit(exit_status(verdicts))


def exit_status(verdicts: Set[Verdict]) -> int:
    if Verdict.MISSED in verdicts:
        return MISSED_STATUS
    return NOISY_STATUS if Verdict.NOISY in verdicts else 0
