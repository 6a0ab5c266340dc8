"""Compares what an engine said or saw with what a scenario expects; raises Mismatch with both sides in its message."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt

from kbpf.model.address import Address, host_port
from kbpf.model.flow import Action, Flow, Verdict
from tests.scenarios.harness.engine import Mismatch
from tests.scenarios.harness.flows import Expectation

Place = tuple[Address, int]


def judge_verdict(flow: Flow, verdict: Verdict, expected: Expectation, masquerade: bool | None) -> None:
    """A decision must name exactly the expected endpoints."""
    found = Expectation(verdict.action, frozenset((backend.address, backend.port) for backend in verdict.backends))
    if found != expected:
        raise Mismatch(f"{described(flow)}: expected {expectation(expected)}, got {expectation(found)}")
    if masquerade is None:
        return
    for backend in verdict.backends:
        if verdict.is_masqueraded(flow, backend) is not masquerade:
            raise Mismatch(f"{described(flow)}: expected {'a' if masquerade else 'no'} masquerade to {backend.address}")


def judge_same(flow: Flow, verdict: Verdict, reference: Verdict) -> None:
    """Beyond the scenario's words, an engine must agree with the reference model in everything.

    Except on which node a backend is: rules do not know that.
    """
    if (verdict.action, _masquerades(flow, verdict)) != (reference.action, _masquerades(flow, reference)):
        raise Mismatch(f"{described(flow)}: the reference model says {reference}, the engine {verdict}")


def _masquerades(flow: Flow, verdict: Verdict) -> dict[Place, bool]:
    """For each backend, whether it sees a node address."""
    return {(each.address, each.port): verdict.is_masqueraded(flow, each) for each in verdict.backends}


def judge_places(what: str, places: Sequence[Place], allowed: frozenset[Place], *, all_used: bool) -> None:
    """Nothing outside `allowed` answered and, where enough flows were made, each of it did."""
    strangers = set(places) - allowed
    if strangers:
        raise Mismatch(f"{what}: answered by {_listed(strangers)}, allowed are {_listed(allowed)}")
    idle = allowed - set(places)
    if all_used and idle:
        raise Mismatch(f"{what}: {len(places)} flows, none to {_listed(idle)}")


def judge_balance(what: str, places: Iterable[Place], allowed: frozenset[Place]) -> None:
    """Chi-square against the even spread; a fair choice fails about once in three million runs."""
    counts = Counter(places)
    expected = counts.total() / len(allowed)
    distance = sum((counts[place] - expected) ** 2 / expected for place in allowed)
    limit = chi_square_limit(len(allowed) - 1)
    if distance > limit:
        shares = ", ".join(f"{host_port(*place)} {counts[place]}" for place in sorted(allowed))
        raise Mismatch(f"{what}: uneven, chi-square {distance:.1f} > {limit:.1f}: {shares}")


def chi_square_limit(degrees: int, deviations: float = 5.0) -> float:
    """The quantile that a normal variable exceeds by `deviations` standard deviations (Wilson and Hilferty)."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + deviations * sqrt(spread)) ** 3


def described(flow: Flow) -> str:
    destination = host_port(flow.destination, flow.port)
    return f"{flow.origin.value} {flow.source} -> {destination}/{flow.protocol.value.lower()}"


def expectation(expected: Expectation) -> str:
    if expected.action is Action.FORWARD:
        return f"forward to {_listed(expected.backends)}"
    return str(expected.action.value)


def _listed(places: Iterable[Place]) -> str:
    return "[" + ", ".join(sorted(host_port(*place) for place in places)) + "]"
