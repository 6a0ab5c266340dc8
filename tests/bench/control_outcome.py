"""What `make bench-control` has measured of one start, as a table beside the others and against the goals."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.table import Table

from tests.bench.goal import Goal

KBPF = "kbpf"
START_GOAL, MEMORY_GOAL_MB, CHANGE_GOAL_MS = 0.25, 120, 15


@dataclass(frozen=True, slots=True)
class Outcome:
    start_s: float
    cpu_s: float
    resident_mb: float
    changes_ms: Sequence[float] = ()
    is_over: bool = True
    """False: it was stopped before the last Service was served, so that time and CPU time are more than measured."""

    def change_ms(self, share: float) -> float | None:
        ordered = sorted(self.changes_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


Measure = Callable[[Outcome], float | None]
PRICES: Mapping[str, Measure] = {
    "start, s": lambda outcome: outcome.start_s,
    "its CPU, s": lambda outcome: outcome.cpu_s,
}
"""Only least values, where a start did not get to its end."""
MEASURES: Mapping[str, Measure] = {
    **PRICES,
    "resident, MB": lambda outcome: outcome.resident_mb,
    "change, median, ms": lambda outcome: outcome.change_ms(0.5),
    "change, p99, ms": lambda outcome: outcome.change_ms(0.99),
}

Outcomes = Sequence[tuple[str, Outcome]]
"""By proxy, in the order of the runs."""


def table(title: str, outcomes: Outcomes) -> Table:
    peers = [proxy for proxy, _ in outcomes if proxy != KBPF]
    made = Table("", *(proxy for proxy, _ in outcomes), *(f"kbpf / {peer}" for peer in peers), title=title)
    for name, measure in MEASURES.items():
        shown = [_shown(name, measure(outcome), outcome) for _, outcome in outcomes]
        made.add_row(name, *shown, *(_ratio(name, measure, outcomes, peer) for peer in peers))
    return made


def goals(outcomes: Outcomes) -> Iterator[Goal]:
    own = [outcome for proxy, outcome in outcomes if proxy == KBPF]
    for proxy, peer in outcomes:
        if own and proxy != KBPF:
            words = "" if peer.is_over else f" (which was stopped after {peer.start_s:.0f} s)"
            ratio = fmean(outcome.start_s for outcome in own) / peer.start_s
            yield Goal(f"start against {proxy}{words}", ratio, START_GOAL)
    for outcome in own:
        yield Goal("resident memory, MB", outcome.resident_mb, MEMORY_GOAL_MB)
        if (p99 := outcome.change_ms(0.99)) is not None:
            yield Goal("change from its watch event to a connection, p99, ms", p99, CHANGE_GOAL_MS)


def _shown(name: str, value: float | None, outcome: Outcome) -> str:
    if value is None:
        return "-"
    return f"{'' if outcome.is_over or name not in PRICES else 'more than '}{value:.4g}"


def _ratio(name: str, measure: Measure, outcomes: Outcomes, peer: str) -> str:
    own = [value for proxy, outcome in outcomes if proxy == KBPF and (value := measure(outcome)) is not None]
    other = next(outcome for proxy, outcome in outcomes if proxy == peer)
    value = measure(other)
    if not own or not value:
        return "-"
    return f"{'' if other.is_over or name not in PRICES else 'less than '}{fmean(own) / value:.2g}"
