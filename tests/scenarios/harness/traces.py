"""Engines that trace: a real datapath over its fake, and the walk of a flow through what it wrote there.

The datapath plans and writes as it does on a node, so that partial syncs and their left-overs are under test as well,
not only the translation.
"""

from msgspec.structs import replace

from kbpf.clock import SystemClock
from kbpf.datapath.ebpf import store
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.fake import FakePrograms
from kbpf.datapath.ebpf.node import NodeSettings
from kbpf.datapath.ebpf.trace import trace as trace_ebpf
from kbpf.datapath.interface import Datapath
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Flavour
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.ruleset import parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.trace import TraceNode
from kbpf.datapath.iptables.trace import trace as trace_iptables
from kbpf.datapath.residual import ResidualDatapath
from kbpf.model.address import Family, family_of
from kbpf.model.flow import PASS, Action, Flow, Origin, Verdict
from tests.scenarios.harness.cluster import CLUSTER_CIDR, LOCAL_FLAGS, NODE, NODE_ADDRESSES
from tests.scenarios.harness.pure import PureEngine

SAVE = {Family.IPV4: "iptables-nft-save", Family.IPV6: "ip6tables-nft-save"}


class TraceEngine(PureEngine):
    """What was held before the first object came is not a left-over; the barrier between the two is `apply({})`."""

    def __init__(self, datapath: Datapath) -> None:
        super().__init__(datapath)
        self.apply({})
        self._at_start = self._dump()

    def leftovers(self) -> str:
        return "\n".join(line for line in self._dump() if line not in self._at_start)

    def _dump(self) -> list[str]:
        return self._datapath.dump().splitlines()


class Rules:
    """The iptables datapath over a fake, and the way of a packet through what it wrote."""

    def __init__(self) -> None:
        self._fake = FakeIptables()
        settings = IptablesSettings(detectors=NODE.detectors, node_ips=NODE_ADDRESSES)
        self.datapath = IptablesDatapath(settings, SystemClock(), flavour=Flavour.NFT, run=self._fake)

    def verdict(self, flow: Flow) -> Verdict:
        rules = parse_save(self._fake([SAVE[family_of(flow.destination)]], "", 1.0).stdout)
        return trace_iptables(rules, flow, TraceNode(NODE.local_addresses)).verdict


class IptablesTraceEngine(TraceEngine):
    name = "iptables-trace"

    def __init__(self) -> None:
        self._rules = Rules()
        super().__init__(self._rules.datapath)

    def verdict(self, flow: Flow) -> Verdict:
        return self._rules.verdict(flow)


NODE_SETTINGS = NodeSettings(detecting=frozenset(Family), pod_ranges=tuple(CLUSTER_CIDR.values()))


class EbpfTraceEngine(TraceEngine):
    """The hooks, and behind them the rules for what the hooks leave alone."""

    name = "ebpf-trace"

    def __init__(self) -> None:
        self._programs = FakePrograms(serves_packets=True)
        self._rules = Rules()
        ebpf = EbpfDatapath(self._programs, DeferSettings(), lambda: LOCAL_FLAGS, NODE_SETTINGS, SystemClock())
        super().__init__(ResidualDatapath(ebpf, self._rules.datapath, lambda: False))

    def verdict(self, flow: Flow) -> Verdict:
        answer = self._answer_of_hooks(flow)
        if answer == PASS:
            return self._rules.verdict(flow)
        if flow.origin is Origin.OUTSIDE:
            return answer
        # No address is rewritten: the route to the endpoint gives the node's sockets one of the node's own.
        return replace(answer, masquerade=answer.action is Action.FORWARD and flow.origin is Origin.HOST)

    def expected(self, flow: Flow, reference: Verdict) -> Verdict:
        """Nothing masquerades the call of a pod's socket: its frontend is not on the way."""
        is_translated = flow.origin is Origin.POD and self._answer_of_hooks(flow) != PASS
        return replace(reference, masquerade=False) if is_translated else reference

    def _answer_of_hooks(self, flow: Flow) -> Verdict:
        assert self._programs.maps is not None
        return trace_ebpf(store.observe(self._programs.maps), flow).verdict

    def _dump(self) -> list[str]:
        # The ids to come move on, since an id is never given twice.
        return [line for line in super()._dump() if not line.startswith("config ")]
