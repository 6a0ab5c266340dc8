"""One frozen configuration: what the parts are given, or what they need of it, by server.py.

`configuration.meaning` makes and checks it from file and flags. Names, meanings and defaults are kube-proxy's wherever
kube-proxy has the setting. The functions that read a value raise ValueError; who calls them knows whose value it is.
"""

import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import msgspec

from kbpf.model.address import Address, Family, family_of, parse_address, parse_cidr
from kbpf.model.detector import DetectLocalMode

DEFAULT_BPFFS_ROOT = Path("/sys/fs/bpf/kbpf")
NODE_PORT_WORDS = ("primary", "localhost", "all")
EVERYWHERE = {Family.IPV4: "0.0.0.0/0", Family.IPV6: "::/0"}


class DatapathWish(Enum):
    AUTO = "auto"
    EBPF = "ebpf"
    IPTABLES = "iptables"


class Fallback(Enum):
    IPTABLES = "iptables"
    NONE = "none"


class TcAttachment(Enum):
    AUTO = "auto"
    TCX = "tcx"
    CLSACT = "clsact"


class SocketLbScope(Enum):
    """Whose sockets are balanced at connect and sendmsg."""

    ALL = "all"
    HOST = "host"


class Underlay(Enum):
    """What stands in iptables beneath eBPF: what eBPF leaves to it, or every Service as a safety net."""

    RESIDUAL = "residual"
    FULL = "full"


class IptablesBackend(Enum):
    AUTO = "auto"
    NFT = "nft"
    LEGACY = "legacy"


class ListenAddress(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConntrackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Connection tracking in the kernel. Zero leaves a value as the system has it."""

    max_per_core: int = 32768
    """Zero makes `min` mean nothing, too."""
    min: int = 131072
    tcp_timeout_established_s: int = 24 * 3600
    tcp_timeout_close_wait_s: int = 3600
    tcp_be_liberal: bool = False
    """False never switches it off."""
    udp_timeout_s: int = 0
    udp_timeout_stream_s: int = 0


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds are floats, CIDRs canonical text; node-port addresses are CIDRs or words, none of them means all."""

    manifests: tuple[str, ...] = ()
    datapath: DatapathWish = DatapathWish.AUTO
    fallback: Fallback = Fallback.IPTABLES
    underlay: Underlay = Underlay.RESIDUAL
    cgroup_root: Path | None = None
    """None: the host's cgroup2 mount, found when it is needed."""
    bpffs_root: Path = DEFAULT_BPFFS_ROOT
    node_name: str = ""
    node_ips: tuple[Address, ...] = ()
    cluster_cidrs: dict[Family, str] = msgspec.field(default_factory=dict)
    detect_local_mode: DetectLocalMode = DetectLocalMode.CLUSTER_CIDR
    pod_interface: str = ""
    """The bridge, or the prefix of the interface names, in those two modes."""
    masquerade_all: bool = False
    masquerade_bit: int = 14
    localhost_node_ports: bool = True
    node_port_addresses: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Shell patterns of devices on which packets from elsewhere are served, beside those that are found."""
    pod_devices: tuple[str, ...] = ()
    """The same for devices of pods that have no socket on this kernel, such as virtual machines."""
    socket_lb_scope: SocketLbScope = SocketLbScope.ALL
    hold_node_ports: bool = False
    """Refuse node ports to sockets of the node's own processes."""
    tc_attachment: TcAttachment = TcAttachment.AUTO
    connection_series: int = 0
    """How many series the metric of connections by Service and backend may have; 0: it is not there."""
    bpf_entries: Mapping[str, int] = msgspec.field(default_factory=dict)
    """max_entries by map name, where it is not the default."""
    sync_period_s: float = 30.0
    min_sync_period_s: float = 1.0
    iptables_backend: IptablesBackend = IptablesBackend.AUTO
    conntrack: ConntrackSettings = ConntrackSettings()
    healthz_address: ListenAddress | None = ListenAddress("0.0.0.0", 10256)  # noqa: S104  (kube-proxy's default)
    metrics_address: ListenAddress | None = ListenAddress("127.0.0.1", 10249)
    must_listen: bool = False
    """An address that cannot be listened on ends the start, instead of being tried again."""
    oom_score_adjustment: int = -999
    kubeconfig: Path | None = None
    master: str = ""
    """The URL of the API server, in place of the one in the kubeconfig."""

    @property
    def rules_hold_all(self) -> bool:
        """Beneath eBPF iptables serves every Service: as a safety net, or for the pods that eBPF leaves alone."""
        return self.underlay is Underlay.FULL or self.socket_lb_scope is SocketLbScope.HOST


def node_name(override: str) -> str:
    """The name under which the Node and the endpoints know this machine: trimmed, lower case."""
    name = (override or socket.gethostname()).strip().lower()
    if not name:
        raise ValueError("the node name is empty")
    return name


def cluster_cidrs(text: str) -> dict[Family, str]:
    """One CIDR, or two of different families, separated by a comma."""
    found: dict[Family, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            family, cidr = parse_cidr(part)
        except ValueError as error:
            raise ValueError(f"{part!r}: {error}") from error
        if family in found:
            raise ValueError(f"{text!r}: more than one {family.value} range")
        found[family] = cidr
    return found


def node_ips(text: str) -> tuple[Address, ...]:
    """One address, or two of different families, separated by a comma."""
    found: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(parse_address(part))
        except ValueError as error:
            raise ValueError(f"{part!r}: {error}") from error
    if len({family_of(address) for address in found}) != len(found):
        raise ValueError(f"{text!r}: at most one address of each family")
    return tuple(found)


def node_port_address(text: str) -> str:
    """A CIDR in its canonical form, or one of the words."""
    try:
        return text if text in NODE_PORT_WORDS else parse_cidr(text)[1]
    except ValueError as error:
        raise ValueError(f"{text!r} is neither a CIDR nor one of {', '.join(NODE_PORT_WORDS)}") from error


def expand_node_port_addresses(addresses: tuple[str, ...], own: tuple[Address, ...]) -> dict[Family, tuple[str, ...]]:
    """CIDRs by family once this node's own addresses are known; a family without any is open on all addresses."""
    words = {
        "primary": tuple(f"{address}/{family_of(address).bits}" for address in own),
        "localhost": ("127.0.0.0/8", "::1/128"),
        "all": tuple(EVERYWHERE.values()),
    }
    cidrs = [cidr for address in addresses for cidr in words.get(address, (address,))]
    found: dict[Family, tuple[str, ...]] = {}
    for family in Family:
        mine = tuple(cidr for cidr in cidrs if parse_cidr(cidr)[0] is family)
        found[family] = mine if mine and EVERYWHERE[family] not in mine else (EVERYWHERE[family],)
    return found


def listen_address(text: str, default_port: int) -> ListenAddress:
    """`IP` or `IP:PORT`."""
    host, port_text = text, ""
    if text.startswith("["):
        host, _, port_text = text[1:].partition("]")
        port_text = port_text.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port_text = text.partition(":")
    try:
        address = parse_address(host)
        port = int(port_text) if port_text else default_port
    except ValueError as error:
        raise ValueError(f"{text!r} is not IP or IP:PORT") from error
    if not 0 < port <= 65535:
        raise ValueError(f"{text!r}: port is not within 1-65535")
    return ListenAddress(address, port)
