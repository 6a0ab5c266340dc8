"""Engines that run: real sockets in the world of world.py, and whichever proxy programs its node n1.

A proxy is anything that can be given a set of objects, say when they are in force, and show what it holds. For kbpf
that is proxy.py; a real kube-proxy fits into the same place.
"""

import ipaddress
import time
from typing import Protocol

from kbpf.datapath.ebpf.factory import netns_cookie
from kbpf.demo.exchange import Answer, spell
from kbpf.demo.patience import patient
from kbpf.model.address import parse_address
from kbpf.model.flow import Action, Flow, Origin, Verdict
from kbpf.model.names import Protocol as ServiceProtocol
from kbpf.model.objects import DATAPATH_ANNOTATION
from tests.scenarios.harness.agent import Target
from tests.scenarios.harness.cluster import NODE
from tests.scenarios.harness.engine import Mismatch, NotShown
from tests.scenarios.harness.flows import Expectation
from tests.scenarios.harness.format import FlowBase, FlowStep, Open, Ping
from tests.scenarios.harness.judge import Place, described, judge_balance, judge_places
from tests.scenarios.harness.objects import ObjectKey, Tree
from tests.scenarios.harness.world import World

FLOWS_PER_ENDPOINT = 20
"""Then a fair choice leaves one of n out with a probability of about n / 500,000,000."""
PATIENCE_S = 3.0
SILENCE_S = 0.5
"""How long a dropped flow is waited for."""
HEAL_S = 2.0


class Proxy(Protocol):
    name: str
    """Of the engine that it makes: iptables-kernel, ebpf-kernel, kube-proxy."""
    translates_sockets: bool
    """Calls of local clients are translated at connect time: a pod is seen with its own address by itself and behind
    external frontends, as nothing has to be masqueraded."""

    def apply(self, objects: dict[ObjectKey, Tree]) -> None:
        """Make exactly these the objects of the cluster; return when they are in force."""
        ...

    def leftovers(self) -> str:
        """What the kernel holds beyond what it held before the first object came."""
        ...


class KernelEngine:
    def __init__(self, world: World, proxy: Proxy) -> None:
        self.name = proxy.name
        self._world = world
        self._proxy = proxy
        self._objects: dict[ObjectKey, Tree] = {}
        self._remembered: dict[str, dict[Flow, Place]] = {}
        self._opened: dict[str, tuple[Flow, Place | None]] = {}

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> None:
        for key, tree in changed.items():
            if tree is None:
                self._objects.pop(key, None)
            else:
                self._objects[key] = tree
        self._proxy.apply(self._objects)

    # -- flows -------------------------------------------------------------------------------------------------------

    def flow(self, step: FlowStep, expected: tuple[Verdict, ...]) -> None:
        wanted = step.wanted
        if self._proxy.translates_sockets and not netns_cookie() and any(map(_is_to_loopback, step.route.flows)):
            raise NotShown("this kernel tells nobody which namespace is the node's, and the first one is no world's")
        count = step.count or self._usual_count(step)
        answers = self._answers(step, count)
        for flow, verdict, replies in zip(step.route.flows, expected, answers, strict=True):
            for reply in replies:
                self._judge_answer(flow, step.mode, wanted, verdict, reply)
        if wanted.action is Action.FORWARD:
            places = [[_place(reply) for reply in replies] for replies in answers]
            self._judge_choice(step, dict(zip(step.route.flows, places, strict=True)))

    @staticmethod
    def _usual_count(step: FlowStep) -> int:
        """Enough to see every endpoint, if each flow chooses anew."""
        several = len(step.wanted.backends) > 1
        if len(step.route.ports) > 1:
            return 1
        return FLOWS_PER_ENDPOINT * len(step.wanted.backends) if several and not step.sticky else 1

    def _answers(self, step: FlowBase, count: int) -> list[list[Answer]]:
        """For each flow of the step, its answers."""
        agent, _ = self._world.agent(step.route.flows[0])
        rounds = agent.flows([self._target(flow, step) for flow in step.route.flows], count)
        return [list(answers) for answers in zip(*rounds, strict=True)]

    def _target(self, flow: Flow, step: FlowBase) -> Target:
        _, source = self._world.agent(flow)
        mode: str = getattr(step, "mode", "connect")
        # An unconnected socket does not hear of an ICMP error, so a refusal may look like silence to it.
        is_silent = step.wanted.action is Action.DROP or (step.wanted.action is Action.REJECT and mode == "sendto")
        timeout = SILENCE_S if is_silent else PATIENCE_S
        return Target(flow.destination, flow.port, flow.protocol.value, mode, source, timeout)

    def _judge_answer(self, flow: Flow, mode: str, wanted: Expectation, verdict: Verdict, answer: Answer) -> None:
        what = described(flow)
        if answer.error == "EPERM" and self._is_stopped_on_its_way_out(flow, wanted):
            return
        match wanted.action:
            case Action.DROP:
                if answer.error != "timeout":
                    raise Mismatch(f"{what}: expected silence, got {_words(answer)}")
            case Action.REJECT:
                allowed = {"ECONNREFUSED", "timeout"} if mode == "sendto" else {"ECONNREFUSED"}
                if answer.error not in allowed or (answer.error != "timeout" and answer.latency_us > _at_once_us(flow)):
                    raise Mismatch(f"{what}: expected a refusal at once, got {_words(answer)}")
            case Action.PASS:
                if answer.backend != spell(flow.destination, flow.port):
                    raise Mismatch(f"{what}: expected to be left alone, got {_words(answer)}")
            case Action.FORWARD:
                if answer.error is not None:
                    raise Mismatch(f"{what}: expected an answer, got {_words(answer)}")
                self._judge_peer(flow, mode, answer)
                self._judge_source(flow, verdict, answer)

    @staticmethod
    def _judge_peer(flow: Flow, mode: str, answer: Answer) -> None:
        address = f"::ffff:{flow.destination}" if mode == "mapped" else flow.destination
        if answer.peer != spell(address, flow.port):
            raise Mismatch(f"{described(flow)}: the client sees {answer.peer} as its peer")

    def _judge_source(self, flow: Flow, verdict: Verdict, answer: Answer) -> None:
        """Pods are seen with their own address unless masqueraded; the node with any of its own."""
        address = _place(answer)[0]
        keeps_source = self._proxy.translates_sockets and flow.origin is Origin.POD
        is_node = flow.origin is Origin.HOST or any(
            verdict.is_masqueraded(flow, backend) for backend in verdict.backends if backend.address == address
        )
        # A frontend with source ranges is left to the rules for pods, too: they masquerade.
        allowed = NODE.local_addresses if is_node else {flow.source}
        if keeps_source:
            allowed |= {flow.source}
        if answer.source not in allowed:
            raise Mismatch(f"{described(flow)}: {answer.backend} saw {answer.source}, allowed: {sorted(allowed)}")

    def _is_stopped_on_its_way_out(self, flow: Flow, wanted: Expectation) -> bool:
        """Of a datagram that rules stop in OUTPUT the kernel says so to the caller, whether they refuse or drop it."""
        meets_rules = not self._proxy.translates_sockets or any(map(_wants_rules, self._objects.values()))
        is_stopped = wanted.action in (Action.DROP, Action.REJECT)
        return is_stopped and meets_rules and flow.origin is Origin.HOST and flow.protocol is ServiceProtocol.UDP

    def _judge_choice(self, step: FlowStep, places: dict[Flow, list[Place]]) -> None:
        what = step.flow + f" ({step.mode})"
        everything = [place for several in places.values() for place in several]
        is_certain = not step.sticky and len(everything) >= FLOWS_PER_ENDPOINT * len(step.wanted.backends)
        judge_places(what, everything, step.wanted.backends, all_used=is_certain)
        if step.balance:
            judge_balance(what, everything, step.wanted.backends)
        if step.redrawn:
            before = self._remembered[step.redrawn]
            # Another client asks the same ports, so ports are compared, not whole flows.
            old = {flow.port: place[0] for flow, place in before.items()}
            if all(old[flow.port] == several[0][0] for flow, several in places.items()):
                raise Mismatch(f"{what}: every choice is the one of {step.redrawn!r}")
        if step.sticky:
            self._judge_sticky(what, step.sticky, places)

    def _judge_sticky(self, what: str, name: str | bool, places: dict[Flow, list[Place]]) -> None:
        known = self._remembered.setdefault(name, {}) if isinstance(name, str) else {}
        for flow, several in places.items():
            seen = {known.setdefault(flow, several[0]), *several}
            if len(seen) > 1:
                raise Mismatch(f"{what}: does not stay with one endpoint: {', '.join(spell(*place) for place in seen)}")

    # -- sessions ----------------------------------------------------------------------------------------------------

    def open(self, step: Open) -> None:
        flow = step.route.flows[0]
        agent, _ = self._world.agent(flow)
        answer = agent.open(step.open, self._target(flow, step))
        if step.wanted.action is Action.FORWARD:
            if answer.backend is None:
                raise Mismatch(f"{described(flow)}: expected an answer, got {_words(answer)}")
            judge_places(step.flow, [_place(answer)], step.wanted.backends, all_used=False)
            self._judge_peer(flow, step.mode, answer)
        elif answer.backend is not None or answer.error == "EPERM":
            raise Mismatch(f"{described(flow)}: expected {step.wanted.action.value}, got {_words(answer)}")
        self._opened[step.open] = flow, _place(answer) if answer.backend else None

    def ping(self, step: Ping) -> None:
        flow, before = self._opened[step.ping]
        agent, _ = self._world.agent(flow)
        if step.wanted is None:
            answer = agent.ping(step.ping)
            if answer.backend is None or _place(answer) != before:
                raise Mismatch(
                    f"{step.ping!r}: expected to stay with {before and spell(*before)}, got {_words(answer)}"
                )
            return
        allowed = [spell(*place) for place in step.wanted.backends]
        answer = agent.heal(step.ping, allowed, HEAL_S)
        if answer.backend not in allowed:
            raise Mismatch(f"{step.ping!r}: expected to reach one of {allowed}, got {_words(answer)}")
        self._opened[step.ping] = flow, _place(answer)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    # -- the end -----------------------------------------------------------------------------------------------------

    def untouched(self, flows: tuple[Flow, ...]) -> None:
        self._world.close_sessions()
        self._remembered.clear()
        self._opened.clear()
        passing = Expectation(Action.PASS)
        for flow in flows:
            agent, source = self._world.agent(flow)
            mode = "connect"
            target = Target(flow.destination, flow.port, flow.protocol.value, mode, source, PATIENCE_S)
            [[answer]] = agent.flows([target], 1)
            self._judge_answer(flow, mode, passing, Verdict(Action.PASS), answer)

    def leftovers(self) -> str:
        return self._proxy.leftovers()


def _wants_rules(tree: Tree) -> bool:
    return DATAPATH_ANNOTATION in (tree["metadata"].get("annotations") or {})


def _at_once_us(flow: Flow) -> float:
    """An ICMPv6 error that arrives while connect() still holds the socket, as on a veth, is passed over by the kernel.

    The SYN that follows a second later is then refused.
    """
    return patient(1.5 if ":" in flow.destination and flow.protocol.value == "TCP" else SILENCE_S) * 1e6


def _is_to_loopback(flow: Flow) -> bool:
    return flow.origin is Origin.HOST and ipaddress.ip_address(flow.destination).is_loopback


def _place(answer: Answer) -> Place:
    assert answer.backend is not None
    address, _, port = answer.backend.rpartition(":")
    return parse_address(address.strip("[]")), int(port)


def _words(answer: Answer) -> str:
    if answer.error is not None:
        return f"{answer.error} after {answer.latency_us / 1000:.0f} ms"
    return f"an answer of {answer.backend}"
