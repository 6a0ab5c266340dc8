"""The suite's own tests: a wrong file is refused in words, and a wrong engine does not get through."""

from pathlib import Path

import pytest

from kbpf.model.flow import DROP, PASS, Action, Flow, Verdict
from kbpf.model.table import Backend
from tests.scenarios.harness.engine import Mismatch
from tests.scenarios.harness.format import ScenarioError, load
from tests.scenarios.harness.judge import chi_square_limit, judge_balance, judge_places
from tests.scenarios.harness.play import play
from tests.scenarios.harness.pure import ReferenceEngine

GOOD = """
title: t
why: w
services: [{ns: shop, name: web, clusterIP: 10.96.0.10, ports: [{port: 80}]}]
slices: [{service: shop/web, ports: [{port: 8080}], endpoints: [{ip: 10.42.1.11, node: n1}]}]
steps:
- {flow: "pod -> 10.96.0.10:80", expect: ["10.42.1.11:8080"]}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "case.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clusterIP:", "clusterIp:", "unknown field `clusterIp` - at `$.services[0]`"),
        ("title: t", "title: ''", "title and why must say something"),
        ("expect:", "expects:", "step 1: Object contains unknown field `expects`"),
        ("pod -> ", "pod => ", "step 1: 'pod => 10.96.0.10:80' is no flow"),
        ("pod -> ", "pod fd42:1::9 -> ", "different families"),
        ('["10.42.1.11:8080"]', "rejected", "'rejected' is no expectation"),
        ('["10.42.1.11:8080"]', "[10.42.1.11]", "'10.42.1.11' is no endpoint"),
        ('["10.42.1.11:8080"]', '["10.42.1.11:8080"], balance: even', "need several endpoints"),
        ('["10.42.1.11:8080"]', '["10.42.1.11:8080"], mode: sendto', "mode sendto is for UDP"),
        ("flow:", "flows:", "step 1: none of open, ping, flow"),
        ("- {flow", "- {skip: {ebpv: x}, flow", "'ebpv' is no engine"),
        ("- {flow", "- {skip: {ebpf: ''}, flow", "skip: ebpf: say why"),
        ("title: t", "title: t\ntitle: u", "'title' stands twice"),
        ('- {flow: "pod -> 10.96.0.10:80", expect: ["10.42.1.11:8080"]}', "- {wait: 1}", "no step has a flow"),
    ],
)
def test_a_wrong_file_is_refused_in_words(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ScenarioError) as error:
        load(write(tmp_path, GOOD.replace(old, new)))
    assert message in str(error.value)
    assert str(error.value).startswith("case.yaml: ")


def test_two_slices_of_one_name_are_refused(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, GOOD.replace("slices: [", "slices: [{service: shop/web, ports: []}, ")))
    with pytest.raises(Mismatch, match="given twice"):
        play(scenario, ReferenceEngine())


class Liar(ReferenceEngine):
    """Says the same of every flow."""

    def __init__(self, answer: Verdict) -> None:
        super().__init__()
        self.answer = answer

    def verdict(self, flow: Flow) -> Verdict:
        return self.answer


GOOD_ANSWER = Verdict(Action.FORWARD, frozenset({Backend("10.42.1.11", 8080, True)}))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (PASS, "step 1: pod 10.42.1.9 -> 10.96.0.10:80/tcp: expected forward to \\[10.42.1.11:8080\\], got pass"),
        (DROP, "got drop"),
        (Verdict(Action.FORWARD, frozenset({Backend("10.42.1.12", 8080)})), "got forward to \\[10.42.1.12:8080\\]"),
        (
            Verdict(Action.FORWARD, GOOD_ANSWER.backends, masquerade=True),
            "the reference model says .*masquerade=False.* the engine .*masquerade=True",
        ),
        (GOOD_ANSWER, "everything was deleted, yet .* expected pass, got forward"),
    ],
)
def test_a_wrong_engine_does_not_get_through(tmp_path: Path, answer: Verdict, message: str) -> None:
    scenario = load(write(tmp_path, GOOD))
    with pytest.raises(Mismatch, match=message):
        play(scenario, Liar(answer))


def test_an_engine_that_forgets_a_deletion_does_not_get_through(tmp_path: Path) -> None:
    class Forgetful(ReferenceEngine):
        def leftovers(self) -> str:
            return "10.96.0.10:80/tcp"

    with pytest.raises(Mismatch, match="yet there is\n10\\.96\\.0\\.10:80/tcp"):
        play(load(write(tmp_path, GOOD)), Forgetful())


A, B = ("10.42.1.1", 80), ("10.42.1.2", 80)


def test_places_must_be_allowed_and_all_used() -> None:
    judge_places("flow", [A, B, A], frozenset({A, B}), all_used=True)
    with pytest.raises(Mismatch, match="answered by"):
        judge_places("flow", [A, B], frozenset({A}), all_used=True)
    with pytest.raises(Mismatch, match="none to"):
        judge_places("flow", [A], frozenset({A, B}), all_used=True)
    judge_places("flow", [A], frozenset({A, B}), all_used=False)


def test_balance_allows_chance_and_not_a_preference() -> None:
    judge_balance("flow", [A] * 180 + [B] * 120, frozenset({A, B}))
    with pytest.raises(Mismatch, match="uneven"):
        judge_balance("flow", [A] * 200 + [B] * 100, frozenset({A, B}))


def test_chi_square_limits_are_those_of_the_tables() -> None:
    # At 2.326 deviations the normal tail is one percent; tables give 6.635 and 21.666.
    assert chi_square_limit(1, 2.326) == pytest.approx(6.635, rel=0.02)
    assert chi_square_limit(9, 2.326) == pytest.approx(21.666, rel=0.01)
