"""What one datapath did on the stage: the answers from each frontend, and how a backend left. Values, and a verdict.

run.py collects them, table.py prints them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from kbpf.demo.exchange import Answer
from kbpf.demo.scene import Frontend


class Departure(msgspec.Struct, frozen=True):
    """A backend left its Service under a stream of new connections."""

    backend: str
    attempts: int
    failed: int
    late: int
    """Connections that it still got after kbpf had said that it is out."""


class Act(msgspec.Struct, frozen=True):
    datapath: str
    answers: Mapping[Frontend, Sequence[Answer]]
    departure: Departure

    def shares(self, frontend: Frontend) -> Counter[str]:
        """How many requests each backend answered."""
        return Counter(answer.backend for answer in self.answers[frontend] if answer.backend)

    def problems(self) -> list[str]:
        """One line for everything that should not be; empty when kbpf did its work."""
        lines = [line for frontend in self.answers for line in self._problems_of(frontend)]
        if self.departure.failed:
            lines.append(f"{self.departure.failed} of {self.departure.attempts} requests failed while a backend left")
        if self.departure.late:
            lines.append(f"{self.departure.backend} had left and still got {self.departure.late} requests")
        return [f"{self.datapath}: {line}" for line in lines]

    def _problems_of(self, frontend: Frontend) -> list[str]:
        failures = [answer.error for answer in self.answers[frontend] if answer.error]
        shares = self.shares(frontend)
        strangers = set(shares) - set(frontend.backend_names)
        unused = set(frontend.backend_names) - set(shares)
        lines = []
        if failures:
            lines.append(f"{len(failures)} of {len(self.answers[frontend])} requests failed: {failures[0]}")
        if strangers:
            lines.append(f"answers from {', '.join(sorted(strangers))}, which are no backends")
        if frontend.keeps_clients and len(shares) > 1:
            lines.append(f"one client met {len(shares)} backends in spite of session affinity")
        if not frontend.keeps_clients and unused:
            lines.append(f"{', '.join(sorted(unused))} was never used")
        return [f"{frontend.service} {frontend.name}: {line}" for line in lines]


def latency_us(answers: Sequence[Answer]) -> float:
    """The median: one slow request on a busy machine says nothing. NaN when every request failed."""
    return median([answer.latency_us for answer in answers if not answer.error] or [float("nan")])
