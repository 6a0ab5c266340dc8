"""The judgement of real answers, without a kernel: canned answers that must, or must not, get through."""

from typing import Any, cast

import pytest

from kbpf.demo.exchange import Answer
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Verdict
from kbpf.model.table import Backend
from tests.scenarios.harness.engine import Mismatch
from tests.scenarios.harness.format import FlowStep, Open, Ping
from tests.scenarios.harness.kernel import KernelEngine
from tests.scenarios.harness.world import World

A, B = "10.42.1.11:8080", "10.42.2.11:8080"
BOTH = Verdict(Action.FORWARD, frozenset({Backend("10.42.1.11", 8080), Backend("10.42.2.11", 8080)}))


class CannedWorld:
    """Its only client has the same answers for every flow, by turns."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers

    def agent(self, flow: Flow) -> tuple["CannedWorld", None]:
        return self, None

    def flows(self, targets: list[object], count: int) -> list[list[Answer]]:
        return [[self.answers[number % len(self.answers)] for _ in targets] for number in range(count)]

    def open(self, name: str, target: object) -> Answer:
        return self.answers[0]

    def ping(self, name: str) -> Answer:
        return self.answers[-1]

    def heal(self, name: str, allowed: list[str], within_s: float) -> Answer:
        return self.answers[-1]


class CannedProxy:
    name = "canned"

    def __init__(self, translates_sockets: bool = False) -> None:
        self.translates_sockets = translates_sockets


def good(backend: str = A, **changes: Any) -> Answer:
    return Answer(**{"backend": backend, "source": "10.42.1.9", "peer": "10.96.0.10:80"} | changes)


def engine(*answers: Answer, translates_sockets: bool = False) -> KernelEngine:
    return KernelEngine(cast(World, CannedWorld(*answers)), cast(Any, CannedProxy(translates_sockets)))


def judged(step: FlowStep, verdict: Verdict, *answers: Answer, translates_sockets: bool = False) -> None:
    engine(*answers, translates_sockets=translates_sockets).flow(step, (verdict,) * len(step.route.flows))


def step(expect: Any, to: str = "10.96.0.10:80", client: str = "pod", **more: Any) -> FlowStep:
    return FlowStep(flow=f"{client} -> {to}", expect=expect, **more)


@pytest.mark.parametrize(
    ("what", "verdict", "answers"),
    [
        (step([A]), BOTH, [good()]),
        (step([A, B]), BOTH, [good(), good(B)]),
        (step([A, B], balance="even", count=300), BOTH, [good(), good(B)]),
        (step([A, B], sticky=True, count=5), BOTH, [good()]),
        (step([A, B], count=2), BOTH, [good()]),
        (step([A], mode="mapped"), BOTH, [good(peer="[::ffff:10.96.0.10]:80")]),
        (step([A], client="host"), BOTH, [good(source="192.168.60.11")]),
        (step("reject"), REJECT, [Answer(error="ECONNREFUSED")]),
        (step("reject", "10.96.0.10:80/udp", mode="sendto"), REJECT, [Answer(error="timeout")]),
        (step("drop"), DROP, [Answer(error="timeout")]),
        (step("pass"), PASS, [good("10.96.0.10:80")]),
    ],
)
def test_right_answers_get_through(what: FlowStep, verdict: Verdict, answers: list[Answer]) -> None:
    judged(what, verdict, *answers)


@pytest.mark.parametrize(
    ("what", "verdict", "answers", "message"),
    [
        (step([A]), BOTH, [good(B)], "answered by"),
        (step([A]), BOTH, [Answer(error="EPERM")], "expected an answer, got EPERM"),
        (step([A]), BOTH, [good(peer=A)], "the client sees 10.42.1.11:8080 as its peer"),
        (step([A]), BOTH, [good(source="192.168.60.11")], "saw 192.168.60.11"),
        (step([A], client="host"), BOTH, [good(source="10.42.1.9")], "saw 10.42.1.9"),
        (step([A, B]), BOTH, [good()], "none to"),
        (step([A, B], balance="even", count=300), BOTH, [good(), good(), good(B)], "uneven"),
        (step([A, B], sticky=True, count=2), BOTH, [good(), good(B)], "does not stay with one endpoint"),
        (step("reject"), REJECT, [Answer(error="EPERM")], "expected a refusal at once, got EPERM"),
        (step("reject"), REJECT, [Answer(error="timeout")], "expected a refusal at once, got timeout"),
        (step("reject"), REJECT, [Answer(error="ECONNREFUSED", latency_us=9e5)], "ECONNREFUSED after 900 ms"),
        (step("reject"), REJECT, [good()], "expected a refusal at once, got an answer of"),
        (step("drop"), DROP, [Answer(error="ECONNREFUSED")], "expected silence"),
        (step("drop"), DROP, [good()], "expected silence"),
        (step("pass"), PASS, [good()], "expected to be left alone"),
        (step("pass"), PASS, [Answer(error="ECONNREFUSED")], "expected to be left alone"),
    ],
)
def test_wrong_answers_do_not(what: FlowStep, verdict: Verdict, answers: list[Answer], message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        judged(what, verdict, *answers)


def test_a_pod_that_reaches_itself_may_be_seen_with_its_own_address_where_sockets_are_translated() -> None:
    itself = step([A], client="pod 10.42.1.11")
    judged(itself, BOTH, good(source="192.168.60.11"))
    judged(itself, BOTH, good(source="10.42.1.11"), translates_sockets=True)
    for source, translates_sockets in (("10.42.1.11", False), ("10.42.1.12", True)):
        with pytest.raises(Mismatch, match="saw"):
            judged(itself, BOTH, good(source=source), translates_sockets=translates_sockets)


def test_a_pod_keeps_its_address_behind_an_external_frontend_where_sockets_are_translated() -> None:
    masqueraded = Verdict(Action.FORWARD, BOTH.backends, masquerade=True)
    outward = step([A], "203.0.113.9:80")
    judged(outward, masqueraded, good(peer="203.0.113.9:80"), translates_sockets=True)
    with pytest.raises(Mismatch, match="saw"):
        judged(outward, masqueraded, good(peer="203.0.113.9:80"))


@pytest.mark.parametrize(("expect", "verdict"), [("drop", DROP), ("reject", REJECT)])
def test_a_datagram_of_the_node_that_rules_stop_may_fail_with_eperm_and_no_other_call(
    expect: str, verdict: Verdict
) -> None:
    stopped, tcp = step(expect, "10.96.0.10:80/udp", "host"), step(expect, client="host")
    judged(stopped, verdict, Answer(error="EPERM"))
    for what, translates_sockets in ((stopped, True), (tcp, False)):
        with pytest.raises(Mismatch, match="got EPERM"):
            judged(what, verdict, Answer(error="EPERM"), translates_sockets=translates_sockets)


def test_a_remembered_choice_must_hold_in_later_steps_and_end_when_redrawn() -> None:
    world = CannedWorld(good())
    playing = KernelEngine(cast(World, world), cast(Any, CannedProxy()))
    first = step([A, B], sticky="mine")
    playing.flow(first, (BOTH,))
    playing.flow(first, (BOTH,))
    with pytest.raises(Mismatch, match="every choice is the one of 'mine'"):
        playing.flow(step([A, B], redrawn="mine", count=1), (BOTH,))
    world.answers = (good(B),)
    with pytest.raises(Mismatch, match="does not stay"):
        playing.flow(first, (BOTH,))
    playing.flow(step([A, B], redrawn="mine", count=1), (BOTH,))


def test_open_connections_stay_or_heal() -> None:
    opened = Open(open="c", flow="pod -> 10.96.0.10:80", expect=[A])
    staying = engine(good())
    staying.open(opened)
    staying.ping(Ping(ping="c", expect="stays"))
    with pytest.raises(Mismatch, match="expected to reach one of"):
        staying.ping(Ping(ping="c", heals=[B]))
    moving = engine(good(), good(B))
    moving.open(opened)
    with pytest.raises(Mismatch, match="expected to stay with"):
        moving.ping(Ping(ping="c", expect="stays"))
    moving.ping(Ping(ping="c", heals=[B]))
    moving.ping(Ping(ping="c", expect="stays"))
