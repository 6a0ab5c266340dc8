"""A figure and the most that it may be: what the benches end with."""

import sys
from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console


class Goal(NamedTuple):
    what: str
    measured: float
    limit: float

    @property
    def is_met(self) -> bool:
        return self.measured <= self.limit


def judge(goals: Iterable[Goal], console: Console) -> None:
    """A line for each goal; exits with status 1 when one is missed."""
    is_met = True
    for goal in goals:
        is_met &= goal.is_met
        words = "[green]pass[/]" if goal.is_met else "[red]FAIL[/]"
        console.print(f"{words} {goal.what}: {goal.measured:.3g}, goal at most {goal.limit}", highlight=False)
    sys.exit(0 if is_met else 1)
