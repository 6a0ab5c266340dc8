"""Plays one scenario on one engine, and then deletes everything: nothing may be left.

Beside the engine runs the reference model on the same objects. What it says of a flow is handed to the engine, so that
an engine must agree with it in full, not only in what the scenario spells out.
"""

from kbpf.model.flow import Flow, Verdict
from tests.scenarios.harness.engine import Engine, Mismatch, NotShown
from tests.scenarios.harness.format import AnyStep, Apply, Delete, FlowStep, Open, Ping, Scenario, Wait
from tests.scenarios.harness.objects import Cluster, ObjectKey, Tree, UnknownObject
from tests.scenarios.harness.pure import ReferenceEngine


def play(scenario: Scenario, engine: Engine) -> list[str]:
    """Raises Mismatch. Returns a sentence for every step that this engine did not play, with the reason."""
    game = Game(scenario, engine)
    try:
        game.start()
        for number, step in enumerate(scenario.steps, 1):
            game.play(number, step)
    finally:
        game.delete_everything()
    game.check_nothing_is_left()
    return game.skipped


class Game:
    def __init__(self, scenario: Scenario, engine: Engine) -> None:
        self.scenario = scenario
        self.engine = engine
        self.cluster = Cluster()
        self.reference = ReferenceEngine()
        self.skipped: list[str] = []
        self._flows: dict[Flow, None] = {}

    def start(self) -> None:
        try:
            self._change(self.cluster.delete_all() | self.cluster.apply(self.scenario.initial))
        except UnknownObject as error:
            raise Mismatch(f"{self.scenario.name}, at the start: {error}") from error

    def play(self, number: int, step: AnyStep) -> None:
        where = f"{self.scenario.name}, step {number}" + (f" ({step.note})" if step.note else "")
        if reason := self.scenario.reason_to_skip(self.engine.name, step):
            self.skipped.append(f"{where}: {reason}")
            return
        try:
            self._play(step)
        except NotShown as reason:
            self.skipped.append(f"{where}: {reason}")
        except (Mismatch, UnknownObject) as error:
            raise Mismatch(f"{where}: {error}") from error

    def _play(self, step: AnyStep) -> None:
        match step:
            case Apply(apply=entries):
                self._change(self.cluster.apply(entries))
            case Delete(delete=names):
                self._change(self.cluster.delete(names))
            case Wait(wait=seconds):
                self.engine.wait(seconds)
            case FlowStep():
                self.engine.flow(step, self._expected(step))
            case Open():
                self._expected(step)
                self.engine.open(step)
            case Ping():
                self.engine.ping(step)

    def _expected(self, step: FlowStep | Open) -> tuple[Verdict, ...]:
        self._flows.update(dict.fromkeys(step.route.flows))
        return tuple(self.reference.verdict(flow) for flow in step.route.flows)

    def delete_everything(self) -> None:
        self._change(self.cluster.delete_all())

    def check_nothing_is_left(self) -> None:
        where = f"{self.scenario.name}, after the last step"
        try:
            self.engine.untouched(tuple(self._flows))
        except Mismatch as error:
            raise Mismatch(f"{where}: everything was deleted, yet {error}") from error
        if leftovers := self.engine.leftovers():
            raise Mismatch(f"{where}: everything was deleted, yet there is\n{leftovers}")

    def _change(self, changed: dict[ObjectKey, Tree | None]) -> None:
        self.reference.apply(changed)
        self.engine.apply(changed)
