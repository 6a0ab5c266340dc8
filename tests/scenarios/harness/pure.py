"""Engines that decide: the reference model, and the traces through what a datapath would program.

They know no sockets and no time: balance, stickiness, waiting and pings of open connections are not shown by them.
"""

import msgspec

from kbpf.model.events import NodeChanged, ServiceChanged, SliceChanged
from kbpf.model.flow import Action, Flow, Verdict
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.node import NodeTopology
from kbpf.model.objects import ZONE_LABEL, EndpointSlice, Node, Service
from kbpf.model.table import ServiceTable
from kbpf.policy.reference import expected_verdict
from kbpf.policy.resolve import resolve
from kbpf.tracking.trackers import Trackers
from tests.scenarios.harness.cluster import NODE, NODE_NAME
from tests.scenarios.harness.engine import Mismatch, NotShown
from tests.scenarios.harness.flows import Expectation
from tests.scenarios.harness.format import FlowStep, Open, Ping
from tests.scenarios.harness.judge import judge_same, judge_verdict
from tests.scenarios.harness.objects import ObjectKey, Tree

PASS = Expectation(Action.PASS)
Event = ServiceChanged | SliceChanged | NodeChanged


class Line:
    """Objects to ServiceTable, one sync for each change: the straight line without its ends."""

    def __init__(self) -> None:
        self.trackers = Trackers(NODE_NAME)
        self.table = ServiceTable()
        self.node = NodeTopology(NODE_NAME)

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> frozenset[ServiceName]:
        """The services that a datapath would have to write."""
        dirty: set[ServiceName] = set()
        for key, tree in changed.items():
            event = _event(key, tree)
            if isinstance(event, NodeChanged):
                labels = (event.node and event.node.metadata.labels) or {}
                self.node = NodeTopology(NODE_NAME, labels.get(ZONE_LABEL, ""))
                dirty.update(self.trackers.service_names)
            else:
                self.trackers.update(event)
        changes = self.trackers.checkout()
        affected: set[ServiceName] = set()
        for name, ports in resolve(changes.dirty | dirty, self.trackers, self.node).items():
            affected |= self.table.replace(name, ports)
        self.trackers.commit(changes)
        return frozenset(affected)

    def verdict(self, flow: Flow) -> Verdict:
        return expected_verdict(self.table, flow, NODE)


def _event(key: ObjectKey, tree: Tree | None) -> Event:
    if key.kind == "Node":
        return NodeChanged(key.name, None if tree is None else msgspec.convert(tree, Node))
    if key.kind == "Service":
        service = None if tree is None else msgspec.convert(tree, Service)
        return ServiceChanged(ServiceName(key.namespace, key.name), service)
    slice_ = None if tree is None else msgspec.convert(tree, EndpointSlice)
    return SliceChanged(SliceName(key.namespace, key.name), slice_)


class ReferenceEngine:
    """The reference model itself, and the base of the traces."""

    name = "reference"

    def __init__(self) -> None:
        self.line = Line()

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> None:
        self.program(self.line.apply(changed))

    def program(self, dirty: frozenset[ServiceName]) -> None:
        """The reference model reads the table itself."""

    def verdict(self, flow: Flow) -> Verdict:
        return self.line.verdict(flow)

    def flow(self, step: FlowStep, expected: tuple[Verdict, ...]) -> None:
        self._judge(step, step.masquerade)
        for flow, reference in zip(step.route.flows, expected, strict=True):
            judge_same(flow, self.verdict(flow), reference)

    def open(self, step: Open) -> None:
        self._judge(step, None)

    def _judge(self, step: FlowStep | Open, masquerade: bool | None) -> None:
        """The endpoints of a port range are judged together, since each port may have its own."""
        verdicts = [self.verdict(flow) for flow in step.route.flows]
        for flow, verdict in zip(step.route.flows, verdicts, strict=True):
            judge_verdict(flow, verdict, _part(step.wanted, verdict, len(verdicts) > 1), masquerade)
        if len(verdicts) > 1:
            together = frozenset().union(*(verdict.backends for verdict in verdicts))
            union = Verdict(verdicts[0].action, together)
            judge_verdict(step.route.flows[0], union, step.wanted, None)

    def ping(self, step: Ping) -> None:
        raise NotShown("a decision has no open connections")

    def wait(self, seconds: float) -> None:
        raise NotShown("a decision knows no time")

    def untouched(self, flows: tuple[Flow, ...]) -> None:
        for flow in flows:
            judge_verdict(flow, self.verdict(flow), PASS, None)

    def leftovers(self) -> str:
        return "\n".join(map(str, self.line.table))


def _part(expected: Expectation, verdict: Verdict, of_range: bool) -> Expectation:
    """What one port of a range must do: the same action, to some of the endpoints."""
    if not of_range or verdict.action is not expected.action:
        return expected
    return Expectation(expected.action, frozenset((each.address, each.port) for each in verdict.backends))


__all__ = ["Line", "Mismatch", "ReferenceEngine"]
