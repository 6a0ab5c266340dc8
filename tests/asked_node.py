"""A node without a kernel that can be asked what it holds: both datapaths over their fakes."""

from collections.abc import Mapping

from kbpf.clock import FakeClock
from kbpf.datapath.ebpf import store
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.fake import FakePrograms
from kbpf.datapath.ebpf.found import Attachment, Found
from kbpf.datapath.ebpf.node import NodeSettings
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.interface import Datapath, MapFill
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Flavour
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.ruleset import parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.residual import ResidualDatapath
from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector
from kbpf.model.table import ServiceTable
from kbpf.policy.reference import ReferenceNode
from kbpf.questions.kernel import Kernel

SAVES = {Family.IPV4: "iptables-nft-save", Family.IPV6: "ip6tables-nft-save"}
NODE_IP, LOOPBACK = Address("192.168.60.11"), Address("127.0.0.1")
DETECTORS = {Family.IPV4: LocalDetector(cidr="10.42.0.0/16")}
NODE = ReferenceNode(
    local_addresses=frozenset({NODE_IP, LOOPBACK}),
    node_port_addresses=frozenset({NODE_IP, LOOPBACK}),
    node_ips=frozenset({NODE_IP}),
    detectors=DETECTORS,
)
LOCAL = {NODE_IP: LocalFlag.NODE_PORT | LocalFlag.PRIMARY, LOOPBACK: LocalFlag.NODE_PORT | LocalFlag.LOOPBACK}
NODE_SETTINGS = NodeSettings(7, frozenset({Family.IPV4}), ("10.42.0.0/16",))


class AskedNode:
    """`datapath` is "ebpf", with rules for what it defers, or "iptables"."""

    def __init__(self, datapath: str = "ebpf", sizes: Mapping[str, int] | None = None) -> None:
        self.programs = FakePrograms(sizes, serves_packets=True)
        self.iptables = FakeIptables()
        self.rule_settings = IptablesSettings(detectors=DETECTORS, node_ips={Family.IPV4: NODE_IP})
        rules = IptablesDatapath(self.rule_settings, FakeClock(), flavour=Flavour.NFT, run=self.iptables)
        self.datapath: Datapath = rules
        if datapath == "ebpf":
            own = EbpfDatapath(self.programs, DeferSettings(), lambda: LOCAL, NODE_SETTINGS, FakeClock())
            self.datapath = ResidualDatapath(own, rules, lambda: False)
        self.table = ServiceTable()

    def sync(self, table: ServiceTable) -> "AskedNode":
        self.table = table
        self.datapath.sync(table, frozenset(table.services), full=True)
        return self

    @property
    def kernel(self) -> Kernel:
        maps = self.programs.maps
        found = None
        if maps is not None:
            rows = store.observe(maps)
            found = Found(rows, {spec.name: MapFill(len(held), spec.max_entries) for spec, held in rows})
        attachments = (Attachment("connect4", "/cgroup", 5),) if self.programs.attached else ()
        saved = {family: parse_save(self.iptables([save], "", 1.0).stdout) for family, save in SAVES.items()}
        return Kernel(found, attachments, saved)
