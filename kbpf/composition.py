"""How the datapaths are put together from the configuration and the Node.

Shared by `server`, `render`, `probe` and `cleanup`; nothing else names an implementation of Datapath.
"""

import logging
from collections.abc import Callable, Set
from dataclasses import replace
from typing import NamedTuple, Protocol

from kbpf.clock import Clock
from kbpf.config import Config, DatapathWish, Fallback, IptablesBackend, TcAttachment
from kbpf.datapath.ebpf import factory
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.collector import FlowCollector, FlowTimeouts
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.uplinks import Way
from kbpf.datapath.interface import Answer, Datapath, Support, SyncReport
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Flavour
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.residual import ResidualDatapath
from kbpf.datapath.select import FallingBackDatapath, ReplacingDatapath, preferred
from kbpf.errors import DatapathUnavailable
from kbpf.host.accounting import create_counters
from kbpf.host.addresses import local_addresses
from kbpf.host.clsact import ClsactFilters
from kbpf.host.conntrack import has_translated_flows
from kbpf.host.devices import first_addresses, uplinks
from kbpf.host.network_watch import NetworkWatch
from kbpf.host.sysctl import KernelSysctls, allow_localnet, is_liberal
from kbpf.model.address import Address, Family, family_of
from kbpf.model.device import Device
from kbpf.model.names import ServiceName
from kbpf.model.objects import Node
from kbpf.model.table import ServiceTable
from kbpf.node_advice import iptables_advice
from kbpf.node_settings import iptables_settings, local_flags, node_settings, own_addresses
from kbpf.runner import RunnerIntervals

log = logging.getLogger(__name__)


class Background(Protocol):
    """Something with a thread of its own beside the control loop."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


EBPF_REST_S = 0.02
"""Between two syncs of the maps. They cost what changed, so this only lets a burst of events become one sync."""
EBPF_BURST = 50
"""So many changes in a row are each live at once."""
LONGEST_REST_S = 3600.0
"""kube-proxy's; what others do to the rules is looked for each sync period, whatever the runner does."""
SYSCTLS = KernelSysctls()
WAYS = {TcAttachment.AUTO: tuple(Way), TcAttachment.TCX: (Way.TCX,), TcAttachment.CLSACT: (Way.CLSACT,)}
FLAVOURS = {IptablesBackend.AUTO: None, IptablesBackend.NFT: Flavour.NFT, IptablesBackend.LEGACY: Flavour.LEGACY}


def intervals(config: Config, datapath_name: str) -> RunnerIntervals:
    """The rhythm of a datapath: rules want rest between two writes, maps do not."""
    longest_s = max(LONGEST_REST_S, config.sync_period_s)
    if datapath_name == "ebpf":
        return RunnerIntervals(EBPF_REST_S, config.sync_period_s, longest_s, EBPF_BURST)
    return RunnerIntervals(config.min_sync_period_s, config.sync_period_s, longest_s)


class Choice(NamedTuple):
    """`name` is "ebpf" or "iptables"; `fallback_reason` is empty when nothing else was wished for."""

    name: str
    fallback_reason: str = ""


def choose_datapath(config: Config, clock: Clock) -> Choice:
    """With the reason in the log, once. Raises DatapathUnavailable when nothing can run."""
    support = Support(Answer.NO, "not asked for")
    if config.datapath is not DatapathWish.IPTABLES:
        support = make_ebpf(config, None, clock).probe()
    name, reason = preferred(config.datapath.value, config.fallback is Fallback.IPTABLES, support)
    if name == "iptables":
        iptables = make_iptables(config, None, clock).probe()
        if iptables.answer is Answer.NO:
            raise DatapathUnavailable(f"{iptables.reason}; {reason}")
    is_fallback = name == "iptables" and config.datapath is not DatapathWish.IPTABLES
    say = log.warning if is_fallback else log.info
    say(f"running {name}: {reason}")
    return Choice(name, reason if is_fallback else "")


def make_datapath(name: str, config: Config, own: Node | None, clock: Clock) -> Datapath:
    """The datapath of this name, with all that has to be replaced, completed or fallen back to by the other one."""
    ebpf = make_ebpf(config, own, clock)
    alone = ReplacingDatapath(NodeIptables(config, own, clock), ebpf)
    if name == "iptables":
        return alone
    residual = ResidualDatapath(ebpf, NodeIptables(config, own, clock), has_translated_flows)
    return FallingBackDatapath(residual, alone) if config.fallback is Fallback.IPTABLES else residual


def make_ebpf(config: Config, own: Node | None, clock: Clock) -> EbpfDatapath:
    return factory.create(
        config.bpffs_root,
        config.cgroup_root,
        NodeAddresses(config, own),
        ClsactFilters(),
        uplinks=lambda: find_uplinks(config, own),
        ways=WAYS[config.tc_attachment],
        node=node_settings(config, own),
        masquerade_all=config.masquerade_all,
        sizes=config.bpf_entries,
        clock=clock,
    )


class NodeAddresses:
    """This node's addresses and what they mean, asked for at each sync.

    Where the cluster does not say by which address it knows the node, the first one of an uplink stands for it; that is
    looked up when the addresses have changed.
    """

    def __init__(self, config: Config, own: Node | None) -> None:
        self._config, self._own = config, own
        self._local: frozenset[Address] = frozenset()
        self._primary: frozenset[Address] = frozenset()

    def __call__(self) -> dict[Address, LocalFlag]:
        local = local_addresses()
        if local != self._local:
            known = own_addresses(self._config, self._own) & local
            families = {family_of(address) for address in known}
            others = first_addresses(find_uplinks(self._config, self._own)) if len(families) < len(Family) else ()
            self._primary = known | {address for address in others if family_of(address) not in families}
            self._local = local
        return local_flags(self._config, self._own, local, self._primary)


def find_uplinks(config: Config, own: Node | None) -> tuple[Device, ...]:
    """The devices by which packets from elsewhere arrive."""
    return uplinks(own_addresses(config, own), (*config.devices, *config.pod_devices))


def packet_path_services(config: Config, clock: Clock, changed: Callable[[], None]) -> list[Background]:
    """What runs beside the control loop for packets from elsewhere; `changed` asks for a full sync."""
    conntrack, node = config.conntrack, node_settings(config, None)
    timeouts = FlowTimeouts(udp_s=node.udp_timeout_s, udp_stream_s=node.udp_stream_timeout_s)
    if conntrack.tcp_timeout_established_s:
        timeouts = replace(timeouts, established_s=conntrack.tcp_timeout_established_s)
    if conntrack.tcp_timeout_close_wait_s:
        timeouts = replace(timeouts, close_wait_s=conntrack.tcp_timeout_close_wait_s)
    return [
        NetworkWatch(lambda: (local_addresses(), find_uplinks(config, None)), changed),
        FlowCollector(lambda: factory.open_maps(config.bpffs_root, config.bpf_entries), timeouts, clock, changed),
    ]


def make_iptables(config: Config, own: Node | None, clock: Clock) -> IptablesDatapath:
    settings = iptables_settings(config, own, local_addresses, is_liberal=is_liberal(config.conntrack, SYSCTLS))
    return IptablesDatapath(settings, clock, flavour=FLAVOURS[config.iptables_backend], create_counters=create_counters)


class NodeIptables:
    """The rules of this node: they follow its addresses, and node ports on 127.0.0.1 get the kernel's permission.

    Nothing of the node is changed before there is a first rule to write.
    """

    name = "iptables"

    def __init__(self, config: Config, own: Node | None, clock: Clock) -> None:
        self._config = config
        self._own = own
        self._iptables = make_iptables(config, own, clock)
        self._may_use_localnet: bool | None = None
        self._is_advised = False

    def probe(self) -> Support:
        return self._iptables.probe()

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        settings = self._settings()
        self._iptables.configure(settings)
        report = self._iptables.sync(table, dirty, full=full)
        if self._is_advised:
            return report
        self._is_advised = True
        return replace(report, warnings=(*report.warnings, *iptables_advice(settings, SYSCTLS)))

    def lost(self) -> tuple[str, ...]:
        return self._iptables.lost()

    def dump(self) -> str:
        return self._iptables.dump()

    def cleanup(self) -> None:
        self._iptables.cleanup()

    def _settings(self) -> IptablesSettings:
        liberal = is_liberal(self._config.conntrack, SYSCTLS)
        settings = iptables_settings(self._config, self._own, local_addresses, is_liberal=liberal)
        if settings.localhost_node_ports and self._may_use_localnet is None:
            self._may_use_localnet = allow_localnet(SYSCTLS)
        return replace(settings, localhost_node_ports=settings.localhost_node_ports and bool(self._may_use_localnet))
