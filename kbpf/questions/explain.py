"""`kbpf explain`: what happens to one flow, from the reference model and from what the kernel holds.

A flow is judged by its first packet; connections that exist keep their backend. Pure, but for `read_explanation`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from kbpf.config import Config
from kbpf.datapath.ebpf.path import rows_met
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.trace import trace as trace_rows
from kbpf.datapath.iptables.trace import TraceError, TraceNode
from kbpf.datapath.iptables.trace import trace as trace_rules
from kbpf.ebpf_parts import NodeAddresses
from kbpf.errors import KbpfError
from kbpf.model.address import family_of, host_port
from kbpf.model.flow import PASS, Action, Flow, Origin, Verdict
from kbpf.model.table import Frontend, ResolvedPort, ServiceTable
from kbpf.node_settings import detectors, node_ips
from kbpf.policy.reference import ReferenceNode, expected_verdict, find_frontend
from kbpf.questions.flow import flow_of
from kbpf.questions.kernel import Kernel, read_kernel
from kbpf.questions.wanted import read_wanted
from kbpf.rendering import Decided

ORIGINS = {Origin.POD: "a pod of this node", Origin.HOST: "this node itself", Origin.OUTSIDE: "elsewhere"}


class Side(msgspec.Struct, frozen=True):
    """One account of the flow: how it comes to its verdict. None: it cannot tell."""

    steps: tuple[str, ...]
    verdict: Verdict | None
    is_in_socket: bool = False
    """Decided at connect: no packet to the frontend ever exists, so none is masqueraded."""


class Explanation(msgspec.Struct, frozen=True):
    flow: Flow
    wanted: Side
    kernel: Side

    @property
    def difference(self) -> str:
        """Where the two do not agree; empty when they do, or when one of them cannot tell."""
        wanted, there = self.wanted.verdict, self.kernel.verdict
        if wanted is None or there is None:
            return ""
        if wanted.action is not there.action:
            return f"wanted is {wanted.action.value}, the kernel's answer is {there.action.value}"
        ours, theirs = places(wanted), places(there)
        words = [f"only wanted: {place}" for place in sorted(ours - theirs)]
        words += [f"only in the kernel: {place}" for place in sorted(theirs - ours)]
        if wanted.masquerade != there.masquerade and not self.kernel.is_in_socket:
            words.append(f"the source is {'' if there.masquerade else 'not '}masqueraded in the kernel alone")
        return "; ".join(words)


def read_explanation(config: Config, client: str, destination: str, origin: Origin | None) -> Explanation:
    """Raises UsageError for words that are no flow."""
    decided: Decided | None = None
    why = ""
    try:
        decided = read_wanted(config)
    except KbpfError as error:
        why = f"not known: {error}"
    node = _reference_node(config, decided)
    table = decided.table if decided else ServiceTable()
    flow = flow_of(client, destination, node, table, origin)
    wanted = wanted_side(table, flow, node) if decided else Side((why,), None)
    return Explanation(flow, wanted, kernel_side(read_kernel(config), flow, node))


def _reference_node(config: Config, decided: Decided | None) -> ReferenceNode:
    own = decided.node if decided else None
    flags = NodeAddresses(config, own)()
    return ReferenceNode(
        local_addresses=frozenset(flags),
        node_port_addresses=frozenset(address for address, flag in flags.items() if flag & LocalFlag.NODE_PORT),
        node_ips=frozenset(node_ips(config, own).values()),
        detectors=detectors(config, own),
        masquerade_all=config.masquerade_all,
    )


# -- what is wanted ----------------------------------------------------------------------------------------------------


def wanted_side(table: ServiceTable, flow: Flow, node: ReferenceNode) -> Side:
    hit = find_frontend(table, flow, node)
    verdict = expected_verdict(table, flow, node)
    return Side(tuple(_decision(hit, flow, verdict)), verdict)


def _decision(hit: tuple[ResolvedPort, Frontend] | None, flow: Flow, verdict: Verdict) -> Iterator[str]:
    if hit is None:
        yield f"{host_port(flow.destination, flow.port)} is no frontend of any Service"
        return
    port, frontend = hit
    yield f"{host_port(flow.destination, flow.port)} is a {frontend.kind.value} of {port.name}"
    target = port.target(frontend)
    yield f"its traffic policy names the {target.view.value} list: {target.outcome.value}"
    yield f"usable endpoints: {len(port.cluster)} in the cluster list, {len(port.local)} in the local list"
    if port.source_ranges:
        yield f"its load balancer IPs take clients in {', '.join(port.source_ranges)}"
    if port.affinity_timeout_s:
        yield f"a client stays with its endpoint for {port.affinity_timeout_s} s after its last connection"
    if flow.origin is not Origin.OUTSIDE and verdict.action is Action.FORWARD and target.view.value == "local":
        yield "external addresses send pods and the node itself to the cluster list"


# -- what the kernel does ----------------------------------------------------------------------------------------------


def kernel_side(kernel: Kernel, flow: Flow, node: ReferenceNode) -> Side:
    """The programs first; what they leave alone meets the rules."""
    steps: list[str] = []
    if kernel.has_programs and kernel.found is not None:
        side = _program_side(kernel.found.rows, flow)
        if side.verdict != PASS:
            return side
        steps += side.steps
    rules = _rule_side(kernel, flow, node)
    return replace(rules, steps=(*steps, *rules.steps))


def _program_side(rows: Rows, flow: Flow) -> Side:
    traced = trace_rows(rows, flow)
    where = "packet program" if flow.origin is Origin.OUTSIDE else "socket hook"
    how = traced.reason.name.lower().replace("_", "-") if traced.reason is not None else "not seen"
    why = f" ({traced.defer_reason.name.lower().replace('_', '-')})" if traced.defer_reason else ""
    steps = (*rows_met(rows, flow), f"{where}: {how}{why}")
    is_in_socket = flow.origin is not Origin.OUTSIDE
    return Side(steps, traced.verdict, is_in_socket and traced.verdict != PASS)


def _rule_side(kernel: Kernel, flow: Flow, node: ReferenceNode) -> Side:
    ruleset = kernel.rulesets.get(family_of(flow.destination))
    if ruleset is None or not kernel.has_rules:
        return Side(("no rule of kbpf stands",), PASS)
    interface = next((each.interface for each in node.detectors.values() if each.interface), "")
    here = TraceNode(node.local_addresses, interface.replace("+", "0") or "pod0", "uplink")
    try:
        traced = trace_rules(ruleset, flow, here)
    except TraceError as error:
        return Side((str(error),), None)
    return Side(tuple(f"rule: {rule}" for rule in traced.rules) or ("no rule applies",), traced.verdict)


# -- words -------------------------------------------------------------------------------------------------------------


def places(verdict: Verdict) -> frozenset[str]:
    return frozenset(host_port(backend.address, backend.port) for backend in verdict.backends)


def verdict_words(side: Side) -> str:
    verdict = side.verdict
    if verdict is None:
        return "cannot tell"
    match verdict.action:
        case Action.FORWARD:
            source = ", the source becomes this node's" if verdict.masquerade and not side.is_in_socket else ""
            return f"to one of {', '.join(sorted(places(verdict)))}{source}"
        case Action.REJECT:
            return "refused: no endpoints"
        case Action.DROP:
            return "dropped"
        case Action.PASS:
            return "left alone: no Service"


def document(explanation: Explanation) -> dict[str, Any]:
    flow = explanation.flow
    return {
        "flow": {
            "origin": flow.origin.value,
            "source": flow.source,
            "destination": host_port(flow.destination, flow.port),
            "protocol": flow.protocol.value,
        },
        "wanted": _side(explanation.wanted),
        "kernel": _side(explanation.kernel),
        "difference": explanation.difference,
    }


def _side(side: Side) -> dict[str, Any]:
    verdict = side.verdict
    return {
        "steps": list(side.steps),
        "action": verdict.action.value if verdict else None,
        "backends": sorted(places(verdict)) if verdict else [],
        "masquerade": bool(verdict and verdict.masquerade and not side.is_in_socket),
    }
