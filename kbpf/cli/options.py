"""Options that are kube-proxy's, and how they become a Config. Wrong values are one line that names the option."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kbpf.config import (
    DEFAULT_BPFFS_ROOT,
    Config,
    ConntrackSettings,
    DatapathWish,
    Fallback,
    IptablesBackend,
    cluster_cidrs,
    listen_address,
    node_ips,
    node_name,
    node_port_addresses,
)
from kbpf.datapath.ebpf.layout import ALL_MAPS, CONNECTIONS, LOCAL_ADDR, NUMBERED_MAPS
from kbpf.datapath.ebpf.rows import AnySpec
from kbpf.duration import format_duration, parse_duration
from kbpf.model.detector import DetectLocalMode

Command = TypeVar("Command", bound=Callable[..., Any])

HEALTHZ_PORT = 10256
MAX_ENTRIES = 1 << 24
SIZED_MAPS = [spec for spec in ALL_MAPS if spec.name in NUMBERED_MAPS or spec in (LOCAL_ADDR, CONNECTIONS)]
CONNTRACK_DEFAULT = ConntrackSettings()


class Duration(click.ParamType[float]):
    """Go's syntax, as kube-proxy's flags have it."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def boolean(name: str, default: bool, text: str) -> Callable[[Command], Command]:
    """Go's booleans: `--name`, `--name=true` and `--name=false`."""
    return click.option(
        name, type=bool, is_flag=False, flag_value=True, default=default, show_default=True, metavar="BOOL", help=text
    )


def choice(values: type[Any]) -> click.Choice[str]:
    return click.Choice([member.value for member in values], case_sensitive=False)


def apply(options: list[Callable[[Command], Command]], command: Command) -> Command:
    """Decorate `command` with `options`, shown by --help in their order."""
    for option in reversed(options):
        command = option(command)
    return command


MANIFESTS = click.option(
    "--manifests",
    multiple=True,
    metavar="PATH",
    help="No API server: read Services, EndpointSlices and the Node from a file or directory of YAML/JSON "
    "and watch it ('-' reads standard input once). Repeatable.",
)
NODE_NAME = click.option("--hostname-override", metavar="NAME", help="This node's name in the cluster. [default: host]")
CGROUP_ROOT = click.option(
    "--cgroup-root",
    type=click.Path(path_type=Path),
    help="The cgroup below which sockets are balanced. [default: the cgroup2 mount]",
)
BPFFS_ROOT = click.option(
    "--bpffs-root",
    type=click.Path(path_type=Path),
    default=DEFAULT_BPFFS_ROOT,
    show_default=True,
    help="Where programs, maps and links are pinned.",
)
IPTABLES_BACKEND = click.option(
    "--iptables-backend",
    type=choice(IptablesBackend),
    default="auto",
    show_default=True,
    help="Which iptables binaries to use; auto follows what the host already has rules in.",
)

TRAFFIC: list[Callable[[Any], Any]] = [
    NODE_NAME,
    click.option("--node-ip", default="", metavar="IPS", help="This node's addresses. [default: from the Node object]"),
    click.option("--cluster-cidr", default="", metavar="CIDRS", help="The range of the pods, one for each IP family."),
    click.option(
        "--detect-local-mode",
        type=choice(DetectLocalMode),
        default="ClusterCIDR",
        show_default=True,
        help="How traffic from pods is told from other traffic.",
    ),
    click.option("--pod-bridge-interface", default="", metavar="NAME", help="The bridge, in mode BridgeInterface."),
    click.option("--pod-interface-name-prefix", default="", metavar="PREFIX", help="In mode InterfaceNamePrefix."),
    boolean("--masquerade-all", False, "Masquerade everything that goes to a ClusterIP."),
    click.option("--iptables-masquerade-bit", type=int, default=14, show_default=True, help="Bit of the packet mark."),
    boolean("--iptables-localhost-nodeports", True, "Serve node ports on 127.0.0.1 as well."),
    click.option(
        "--nodeport-addresses",
        multiple=True,
        metavar="CIDRS",
        help="Addresses on which node ports are open: CIDRs, 'primary', 'localhost', 'all'. [default: all]",
    ),
]

CONNTRACK: list[Callable[[Any], Any]] = [
    click.option(
        "--conntrack-max-per-core",
        type=int,
        default=CONNTRACK_DEFAULT.max_per_core,
        show_default=True,
        help="Room in the connection tracking table for each core; never makes it smaller. 0: leave it.",
    ),
    click.option(
        "--conntrack-min",
        type=int,
        default=CONNTRACK_DEFAULT.min,
        show_default=True,
        help="At least so much room, however few the cores.",
    ),
    click.option(
        "--conntrack-tcp-timeout-established",
        type=Duration(),
        default=format_duration(CONNTRACK_DEFAULT.tcp_timeout_established_s),
        show_default=True,
        help="How long an idle TCP connection is tracked. 0: leave it.",
    ),
    click.option(
        "--conntrack-tcp-timeout-close-wait",
        type=Duration(),
        default=format_duration(CONNTRACK_DEFAULT.tcp_timeout_close_wait_s),
        show_default=True,
        help="How long a TCP connection is tracked that one side has closed. 0: leave it.",
    ),
    boolean("--conntrack-tcp-be-liberal", False, "Let TCP packets outside of the window pass as valid."),
    click.option(
        "--conntrack-udp-timeout",
        type=Duration(),
        default=format_duration(CONNTRACK_DEFAULT.udp_timeout_s),
        show_default=True,
        help="How long a UDP flow without answers is tracked. 0: leave it.",
    ),
    click.option(
        "--conntrack-udp-timeout-stream",
        type=Duration(),
        default=format_duration(CONNTRACK_DEFAULT.udp_timeout_stream_s),
        show_default=True,
        help="How long a UDP flow with answers is tracked. 0: leave it.",
    ),
]

RUNNING: list[Callable[[Any], Any]] = [
    MANIFESTS,
    click.option(
        "--datapath",
        type=choice(DatapathWish),
        default="auto",
        show_default=True,
        help="auto: eBPF where the probes and the self-test pass, iptables otherwise.",
    ),
    click.option(
        "--fallback",
        type=choice(Fallback),
        default="iptables",
        show_default=True,
        help="What runs when eBPF is unavailable; none: exit with status 3 and the reason.",
    ),
    CGROUP_ROOT,
    BPFFS_ROOT,
    *TRAFFIC,
    click.option(
        "--iptables-sync-period",
        type=Duration(),
        default="30s",
        show_default=True,
        help="At least this often the kernel is compared with what it should hold, and repaired.",
    ),
    click.option(
        "--iptables-min-sync-period",
        type=Duration(),
        default="1s",
        show_default=True,
        help="Rest between two writes of iptables rules, counted from the end of the first.",
    ),
    IPTABLES_BACKEND,
    *CONNTRACK,
    click.option(
        "--healthz-bind-address",
        default=f"0.0.0.0:{HEALTHZ_PORT}",
        show_default=True,
        metavar="IP[:PORT]",
        help="Where /healthz and /livez answer; an empty value: nowhere.",
    ),
]


def _entries_option(spec: AnySpec) -> Callable[[Command], Command]:
    text = f"Room in the map '{spec.name}'."
    bounds = click.IntRange(min=1, max=MAX_ENTRIES)
    return click.option(spec.size_flag, type=bounds, default=spec.max_entries, show_default=True, help=text)


RUNNING += [_entries_option(spec) for spec in SIZED_MAPS]

LOGGING: list[Callable[[Any], Any]] = [
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
    click.option("-v", "--verbose", "verbosity", count=True, help="Say more; repeat for even more."),
]


def config_of(options: dict[str, Any]) -> Config:
    """The validated configuration of a command that has all of RUNNING. Raises UsageError."""
    return Config(
        manifests=tuple(options["manifests"]),
        datapath=DatapathWish(options["datapath"]),
        fallback=Fallback(options["fallback"]),
        cgroup_root=options["cgroup_root"],
        bpffs_root=options["bpffs_root"],
        bpf_entries={spec.name: options[spec.size_flag.removeprefix("--").replace("-", "_")] for spec in SIZED_MAPS},
        sync_period_s=options["iptables_sync_period"],
        min_sync_period_s=options["iptables_min_sync_period"],
        iptables_backend=IptablesBackend(options["iptables_backend"]),
        conntrack=conntrack_of(options),
        healthz_address=listen_address("--healthz-bind-address", options["healthz_bind_address"], HEALTHZ_PORT),
        **traffic_of(options),
    )


def conntrack_of(options: dict[str, Any]) -> ConntrackSettings:
    """Whole seconds, rounded down as kube-proxy does it. Raises UsageError."""
    return ConntrackSettings(
        max_per_core=options["conntrack_max_per_core"],
        min=options["conntrack_min"],
        tcp_timeout_established_s=int(options["conntrack_tcp_timeout_established"]),
        tcp_timeout_close_wait_s=int(options["conntrack_tcp_timeout_close_wait"]),
        tcp_be_liberal=options["conntrack_tcp_be_liberal"],
        udp_timeout_s=int(options["conntrack_udp_timeout"]),
        udp_timeout_stream_s=int(options["conntrack_udp_timeout_stream"]),
    )


def traffic_of(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of Config that decide about traffic, from a command that has TRAFFIC. Raises UsageError."""
    return {
        "node_name": node_name(options["hostname_override"]),
        "node_ips": node_ips(options["node_ip"]),
        "cluster_cidrs": cluster_cidrs(options["cluster_cidr"]),
        "detect_local_mode": DetectLocalMode(options["detect_local_mode"]),
        "pod_interface": options["pod_bridge_interface"] or options["pod_interface_name_prefix"],
        "masquerade_all": options["masquerade_all"],
        "masquerade_bit": options["iptables_masquerade_bit"],
        "localhost_node_ports": options["iptables_localhost_nodeports"],
        "node_port_addresses": node_port_addresses(",".join(options["nodeport_addresses"])),
    }
