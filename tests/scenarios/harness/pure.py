"""Engines that decide: the reference model, and the traces through what a datapath would program.

They know no sockets and no time: balance, stickiness, waiting and pings of open connections are not shown by them.
"""

from collections.abc import Set

import msgspec

from kbpf.clock import FakeClock
from kbpf.datapath.interface import Answer, Datapath, Support, SyncReport
from kbpf.host.fake import FakeConntrack
from kbpf.host.udp_cleanup import UdpCleanup
from kbpf.model.events import Kind, NodeChanged, ServiceChanged, SliceChanged, Synced
from kbpf.model.flow import Action, Flow, Verdict
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.objects import EndpointSlice, Node, Service
from kbpf.model.table import ServiceTable
from kbpf.policy.reference import expected_verdict, find_frontend
from kbpf.proxier import Proxier
from kbpf.tracking.trackers import Trackers
from tests.scenarios.harness.cluster import NODE, NODE_NAME
from tests.scenarios.harness.engine import NotShown
from tests.scenarios.harness.flows import Expectation
from tests.scenarios.harness.format import FlowStep, Open, Ping
from tests.scenarios.harness.judge import judge_same, judge_verdict
from tests.scenarios.harness.objects import ObjectKey, Tree

PASS = Expectation(Action.PASS)
Event = ServiceChanged | SliceChanged | NodeChanged


class TableDatapath:
    """Programs nothing and keeps the table, for the reference model to read."""

    name = "reference"

    def __init__(self) -> None:
        self.table = ServiceTable()

    def probe(self) -> Support:
        return Support(Answer.YES)

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        self.table = table
        return SyncReport(self.name, full, len(dirty), 0, 0.0)

    def lost(self) -> tuple[str, ...]:
        return ()

    def examine(self) -> None:
        return None

    def dump(self) -> str:
        return "".join(f"{port}\n" for port in self.table)

    def cleanup(self) -> None:
        self.table = ServiceTable()


class Line:
    """The product's own line from events to a datapath, one sync for each change."""

    def __init__(self, datapath: Datapath) -> None:
        udp_cleanup = UdpCleanup(FakeConntrack(), FakeClock())
        self._proxier = Proxier(NODE_NAME, Trackers(NODE_NAME), lambda node: datapath, udp_cleanup, lambda status: None)
        for kind in Kind:
            self._proxier.take(Synced(kind))

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> None:
        for key, tree in changed.items():
            self._proxier.take(_event(key, tree))
        self._proxier.sync()


def _event(key: ObjectKey, tree: Tree | None) -> Event:
    if key.kind == "Node":
        return NodeChanged(key.name, None if tree is None else msgspec.convert(tree, Node))
    if key.kind == "Service":
        service = None if tree is None else msgspec.convert(tree, Service)
        return ServiceChanged(ServiceName(key.namespace, key.name), service)
    slice_ = None if tree is None else msgspec.convert(tree, EndpointSlice)
    return SliceChanged(SliceName(key.namespace, key.name), slice_)


class PureEngine:
    """Base of the engines that decide: a datapath that is kept in step, and `verdict`, which asks what it holds."""

    name: str

    def __init__(self, datapath: Datapath) -> None:
        self._datapath = datapath
        self._line = Line(datapath)

    def apply(self, changed: dict[ObjectKey, Tree | None]) -> None:
        self._line.apply(changed)

    def verdict(self, flow: Flow) -> Verdict:
        raise NotImplementedError

    def expected(self, flow: Flow, reference: Verdict) -> Verdict:
        """What the reference model says, but for the listed deviations of this engine."""
        return reference

    def flow(self, step: FlowStep, expected: tuple[Verdict, ...]) -> None:
        self._judge(step, step.masquerade)
        for flow, reference in zip(step.route.flows, expected, strict=True):
            judge_same(flow, self.verdict(flow), self.expected(flow, reference))

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
        return self._datapath.dump()


class ReferenceEngine(PureEngine):
    """The reference model over the decided table."""

    name = "reference"

    def __init__(self) -> None:
        self._tables = TableDatapath()
        super().__init__(self._tables)

    def verdict(self, flow: Flow) -> Verdict:
        return expected_verdict(self._tables.table, flow, NODE)

    def has_affinity(self, flow: Flow) -> bool:
        hit = find_frontend(self._tables.table, flow, NODE)
        return hit is not None and hit[0].affinity_timeout_s > 0


def _part(expected: Expectation, verdict: Verdict, of_range: bool) -> Expectation:
    """What one port of a range must do: the same action, to some of the endpoints."""
    if not of_range or verdict.action is not expected.action:
        return expected
    return Expectation(expected.action, frozenset((each.address, each.port) for each in verdict.backends))
