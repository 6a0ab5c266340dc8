"""What a scenario is played on: one adapter for each way of answering "what happens to this flow?".

Pure engines decide (pure.py): they answer with a verdict. Running ones (kernel.py) answer with what real sockets saw.
The player (play.py) knows only this interface.
"""

from typing import Protocol

from kbpf.model.flow import Flow, Verdict
from tests.scenarios.harness.format import FlowStep, Open, Ping
from tests.scenarios.harness.objects import ObjectKey, Tree


class Mismatch(AssertionError):
    """The engine did something else than the scenario says."""


class NotShown(Exception):
    """A step that means nothing to this engine, for example real time to one that only decides."""


class Engine(Protocol):
    name: str

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> None:
        """Objects that are new or different; None means deleted. Returns when they are in force."""
        ...

    def flow(self, step: FlowStep, expected: tuple[Verdict, ...]) -> None:
        """Raises Mismatch. `expected` is what the reference model says of each of the step's flows."""
        ...

    def open(self, step: Open) -> None: ...

    def ping(self, step: Ping) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def untouched(self, flows: tuple[Flow, ...]) -> None:
        """Raises Mismatch if the engine still handles any of them: everything was deleted."""
        ...

    def leftovers(self) -> str:
        """What is still there although everything was deleted, as text; empty when all is well."""
        ...
