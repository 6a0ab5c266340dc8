"""The first packet of a flow, hook by hook through the rules, as the kernel takes it. Pure.

The rules are what `parse_save` read, as they were rendered or as iptables-save printed them. Tests compare the verdict
with the reference model; `kbpf explain` prints the rules that were taken.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kbpf.datapath.iptables.packet import Ended, Packet, walk
from kbpf.datapath.iptables.ruleset import Ruleset, Table
from kbpf.errors import KbpfError
from kbpf.model.address import Address
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Origin, Verdict
from kbpf.model.table import Backend

Hook = tuple[Table, str]


class TraceError(KbpfError):
    """The rules send one flow to ends that no single verdict can name."""


class TraceNode(msgspec.Struct, frozen=True):
    """What the rules ask about the host. 127.0.0.0/8 and ::1 are local without being listed."""

    local_addresses: frozenset[Address] = frozenset()
    pod_interface: str = "veth0"
    uplink: str = "eth0"


class Trace(NamedTuple):
    verdict: Verdict
    """Its backends do not say whether they are on this node: rules do not know."""
    rules: tuple[str, ...]
    """Every rule that can match, in the order of the walk; the table in front."""


def trace(ruleset: Ruleset, flow: Flow, node: TraceNode) -> Trace:
    ends = tuple(_walk(ruleset, flow, node))
    taken = dict.fromkeys(rule for end in ends for rule in end.packet.taken)
    return Trace(_verdict(flow, ends), tuple(taken))


def _walk(ruleset: Ruleset, flow: Flow, node: TraceNode) -> Iterator[Ended]:
    interfaces = {Origin.POD: node.pod_interface, Origin.OUTSIDE: node.uplink, Origin.HOST: ""}
    packet = Packet(
        flow.source, flow.destination, flow.port, flow.protocol, interfaces[flow.origin], node.local_addresses
    )
    starts_here = flow.origin is Origin.HOST
    for first in walk(ruleset, Table.NAT, "OUTPUT" if starts_here else "PREROUTING", packet):
        # Only now is it routed: where it goes depends on the translated destination.
        hooks = _hooks(starts_here, first.packet.is_local(first.packet.destination))
        yield from _after(ruleset, first, hooks)


def _hooks(starts_here: bool, is_for_us: bool) -> tuple[Hook, ...]:
    if not starts_here:
        return ((Table.FILTER, "INPUT"),) if is_for_us else ((Table.FILTER, "FORWARD"), (Table.NAT, "POSTROUTING"))
    hooks = ((Table.FILTER, "OUTPUT"), (Table.NAT, "POSTROUTING"))
    # Back in through the loopback device; nat has decided the flow by then and is not asked again.
    return (*hooks, (Table.FILTER, "INPUT")) if is_for_us else hooks


def _after(ruleset: Ruleset, ended: Ended, hooks: tuple[Hook, ...]) -> Iterator[Ended]:
    if ended.target != "ACCEPT" or not hooks:
        yield ended
        return
    (table, chain), rest = hooks[0], hooks[1:]
    for end in walk(ruleset, table, chain, ended.packet):
        yield from _after(ruleset, end, rest)


def _verdict(flow: Flow, ends: tuple[Ended, ...]) -> Verdict:
    verdicts = {_fixed_verdict(end) for end in ends}
    if len(verdicts) > 1:
        raise TraceError(f"the rules leave it to chance what happens to {flow}")
    (fixed,) = verdicts
    if fixed is not None:
        return fixed
    backends = frozenset(Backend(end.packet.destination, end.packet.port) for end in ends)
    delivered = _delivered(flow, ends)
    # A hairpin is masqueraded whatever the rest of the rules say.
    others = {end.packet.is_masqueraded for end in ends if end.packet.destination not in (flow.source, *delivered)}
    if len(others) > 1:
        raise TraceError(f"the rules leave it to chance whether {flow} is masqueraded")
    return Verdict(Action.FORWARD, backends, any(others), delivered)


def _delivered(flow: Flow, ends: tuple[Ended, ...]) -> frozenset[Address]:
    """Backends at the node's own addresses: what comes in and goes to them does not cross nat POSTROUTING."""
    if flow.origin is Origin.HOST:
        return frozenset()
    return frozenset(end.packet.destination for end in ends if end.packet.is_local(end.packet.destination))


def _fixed_verdict(end: Ended) -> Verdict | None:
    """None: the packet goes to a backend."""
    if end.target in ("DROP", "REJECT"):
        return DROP if end.target == "DROP" else REJECT
    return None if end.packet.is_translated else PASS
