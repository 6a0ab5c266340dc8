"""kbpf's own flags. In a configuration file they stand under `kbpf:`."""

import click

from kbpf.cli.kinds import MapEntries, choice
from kbpf.cli.setting import Setting
from kbpf.config import (
    DEFAULT_BPFFS_ROOT,
    DatapathWish,
    Fallback,
    IptablesBackend,
    SocketLbScope,
    TcAttachment,
    Underlay,
)
from kbpf.datapath.ebpf.sizes import DEFAULT_ENTRIES, GROWING, size_flag

OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
NODE_IP = Setting(
    "--node-ip", ("kbpf.nodeIP",), "This node's addresses.", metavar="IPS", default="from the Node object"
)
MANIFESTS = Setting(
    "--manifests",
    ("kbpf.manifests",),
    "No API server: read Services, EndpointSlices and the Node from a file or directory of YAML/JSON "
    "and watch it ('-' reads standard input once). Repeatable.",
    metavar="PATH",
    is_list=True,
    splits=False,
)
DATAPATH = Setting(
    "--datapath",
    ("kbpf.datapath",),
    "auto: eBPF where the probes and the self-test pass, iptables otherwise.",
    choice(DatapathWish),
)
FALLBACK = Setting(
    "--fallback",
    ("kbpf.fallback",),
    "What runs when eBPF is unavailable; none: exit with status 3 and the reason.",
    choice(Fallback),
)
UNDERLAY = Setting(
    "--underlay",
    ("kbpf.underlay",),
    "What stands in iptables beneath eBPF. residual: what eBPF leaves to it; full: every Service, as a safety net, in "
    "force at once where the programs are not. All packets of the node meet the rules then.",
    choice(Underlay),
)
CGROUP_ROOT = Setting(
    "--cgroup-root",
    ("kbpf.cgroupRoot",),
    "The cgroup below which sockets are balanced.",
    metavar="PATH",
    default="the cgroup2 mount",
)
BPFFS_ROOT = Setting(
    "--bpffs-root",
    ("kbpf.bpffsRoot",),
    "Where programs, maps and links are pinned.",
    metavar="PATH",
    default=str(DEFAULT_BPFFS_ROOT),
)
DEVICES = Setting(
    "--devices",
    ("kbpf.devices",),
    "Serve clients elsewhere on these network devices as well (shell patterns). Devices with a default route or an "
    "address of the node are found.",
    metavar="NAMES",
    is_list=True,
)
POD_DEVICES = Setting(
    "--pod-devices",
    ("kbpf.podDevices",),
    "Devices of pods without sockets on this kernel, such as virtual machines (shell patterns).",
    metavar="NAMES",
    is_list=True,
)
SOCKET_LB_SCOPE = Setting(
    "--socket-lb-scope",
    ("kbpf.socketLbScope",),
    "host: only sockets of the node's own processes are balanced at connect, and iptables serves pods, so that a proxy "
    "in the pod (a service mesh's sidecar) sees the address that was called.",
    choice(SocketLbScope),
)
HOLD_NODE_PORTS = Setting(
    "--hold-node-ports",
    ("kbpf.holdNodePorts",),
    "Refuse node ports to sockets of the node's own processes (EADDRINUSE), which would never hear anything there.",
    bool,
)
TC_ATTACHMENT = Setting(
    "--tc-attachment",
    ("kbpf.tcAttachment",),
    "How packet programs get onto devices; auto: as TCX links where the kernel has them, as clsact filters otherwise.",
    choice(TcAttachment),
)
CONNECTION_SERIES = Setting(
    "--connection-series",
    ("kbpf.connectionSeries",),
    "Show connections through eBPF by Service and backend as a metric of so many series at most; 0: not at all.",
    int,
    metavar="NUMBER",
)
IPTABLES_BACKEND = Setting(
    "--iptables-backend",
    ("kbpf.iptablesBackend",),
    "Which iptables binaries to use; auto follows what the host already has rules in.",
    choice(IptablesBackend),
)


def _room_words(name: str) -> str:
    return f"Room in the map '{name}'" + ("; without it the map grows when it must." if name in GROWING else ".")


MAP_ENTRIES = tuple(
    Setting(size_flag(name), (f"kbpf.mapEntries.{name}",), _room_words(name), MapEntries(), default=str(entries))
    for name, entries in DEFAULT_ENTRIES.items()
)
