"""How the datapaths are put together from the configuration and the Node.

Shared by `server`, `render`, `probe` and `cleanup`; nothing but this and `ebpf_parts` names an implementation of
Datapath.
"""

import logging
from collections.abc import Set
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from kbpf.clock import Clock
from kbpf.config import Config, DatapathWish, Fallback, IptablesBackend
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
from kbpf.host.sysctl import KernelSysctls, Sysctl, allow_localnet, is_liberal
from kbpf.model.names import ServiceName
from kbpf.model.objects import Node
from kbpf.model.table import ServiceTable
from kbpf.node_advice import iptables_advice
from kbpf.node_settings import iptables_settings
from kbpf.runner import RunnerIntervals

if TYPE_CHECKING:
    from kbpf.datapath.ebpf.backend import EbpfDatapath

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
FLAVOURS = {IptablesBackend.AUTO: None, IptablesBackend.NFT: Flavour.NFT, IptablesBackend.LEGACY: Flavour.LEGACY}


def intervals(config: Config, datapath_name: str) -> RunnerIntervals:
    """The rhythm of a datapath: rules want rest between two writes, maps do not."""
    longest_s = max(LONGEST_REST_S, config.sync_period_s)
    if datapath_name == "ebpf" and not config.rules_hold_all:
        return RunnerIntervals(EBPF_REST_S, config.sync_period_s, longest_s, EBPF_BURST)
    return RunnerIntervals(config.min_sync_period_s, config.sync_period_s, longest_s)


class Choice(NamedTuple):
    """`name` is "ebpf" or "iptables"."""

    name: str
    reason: str = ""
    is_fallback: bool = False
    """Something else was wished for."""
    iptables: IptablesDatapath | None = None
    """The one that was probed: it remembers for a moment what it found."""

    @property
    def fallback_reason(self) -> str:
        return self.reason if self.is_fallback else ""


def choose_datapath(config: Config, clock: Clock) -> Choice:
    """With the reason in the log, once. Raises DatapathUnavailable when nothing can run."""
    support, iptables = Support(Answer.NO, "not asked for"), None
    if config.datapath is not DatapathWish.IPTABLES:
        support = make_ebpf(config, None, clock).probe()
    name, reason = preferred(config.datapath.value, config.fallback is Fallback.IPTABLES, support)
    if name == "iptables":
        iptables = make_iptables(config, None, clock)
        answer = iptables.probe()
        if answer.answer is Answer.NO:
            raise DatapathUnavailable(f"{answer.reason}; {reason}")
    is_fallback = name == "iptables" and config.datapath is not DatapathWish.IPTABLES
    say = log.warning if is_fallback else log.info
    say(f"running {name}: {reason}")
    return Choice(name, reason, is_fallback, iptables)


def make_datapath(choice: Choice, config: Config, own: Node | None, clock: Clock) -> Datapath:
    """What was chosen, with all that has to be replaced, completed or fallen back to by the other datapath."""
    rules = NodeIptables(config, own, clock, choice.iptables)
    if choice.name == "iptables" and not _is_left_of_ebpf(config):
        return rules
    ebpf = make_ebpf(config, own, clock)
    alone = ReplacingDatapath(rules, ebpf)
    if choice.name == "iptables":
        return alone
    residual = ResidualDatapath(
        ebpf,
        NodeIptables(config, own, clock, is_residue=not config.rules_hold_all),
        has_translated_flows,
        holds_all=config.rules_hold_all,
    )
    return FallingBackDatapath(residual, alone) if config.fallback is Fallback.IPTABLES else residual


def _is_left_of_ebpf(config: Config) -> bool:
    """Is there anything to replace? Filters on devices hold their programs even when the pins are gone."""
    if config.bpffs_root.exists():
        return True
    try:
        return any(each.owner == str(config.bpffs_root) for each in ClsactFilters().found())
    except OSError:
        return False  # a kernel without traffic control, or rights without it, has no filter of ours


def make_ebpf(config: Config, own: Node | None, clock: Clock) -> "EbpfDatapath":
    from kbpf import ebpf_parts  # only now: iptables alone needs none of it, and starts faster so

    return ebpf_parts.make_datapath(config, own, clock)


def make_iptables(config: Config, own: Node | None, clock: Clock) -> IptablesDatapath:
    settings = iptables_settings(config, own, local_addresses, is_liberal=is_liberal(config.conntrack, SYSCTLS))
    return IptablesDatapath(settings, clock, flavour=FLAVOURS[config.iptables_backend], create_counters=create_counters)


def standing_iptables_settings(config: Config, own: Node | None) -> IptablesSettings:
    """Those by which rules that stand were written, as far as the node tells; changes nothing of it."""
    settings = iptables_settings(config, own, local_addresses, is_liberal=is_liberal(config.conntrack, SYSCTLS))
    may_use_localnet = SYSCTLS.read(Sysctl.ROUTE_LOCALNET) == 1
    return replace(settings, localhost_node_ports=settings.localhost_node_ports and may_use_localnet)


class NodeIptables:
    """The rules of this node: they follow its addresses, and node ports on 127.0.0.1 get the kernel's permission.

    Nothing of the node is changed before there is a first rule to write.
    """

    name = "iptables"

    def __init__(
        self,
        config: Config,
        own: Node | None,
        clock: Clock,
        iptables: IptablesDatapath | None = None,
        *,
        is_residue: bool = False,
    ) -> None:
        """`iptables`: one that was probed. `is_residue`: eBPF serves what is not in these rules."""
        self._config = config
        self._own = own
        self._is_residue = is_residue
        self._iptables = iptables or make_iptables(config, own, clock)
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

    def examine(self) -> None:
        return self._iptables.examine()

    def dump(self) -> str:
        return self._iptables.dump()

    def cleanup(self) -> None:
        self._iptables.cleanup()

    def _settings(self) -> IptablesSettings:
        liberal = is_liberal(self._config.conntrack, SYSCTLS)
        settings = iptables_settings(self._config, self._own, local_addresses, is_liberal=liberal)
        if settings.localhost_node_ports and self._may_use_localnet is None:
            self._may_use_localnet = allow_localnet(SYSCTLS)
        return replace(
            settings,
            localhost_node_ports=settings.localhost_node_ports and bool(self._may_use_localnet),
            is_residue=self._is_residue,
        )
