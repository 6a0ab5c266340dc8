"""A KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) as a value: names and defaults are kube-proxy 1.37's.

Files fill it (`reading`), flags overlay it (`overlay`), `meaning` turns it into the Config that the parts are given,
and /configz shows it. kbpf's own settings stand in it under `kbpf`.
"""

from typing import Any

import msgspec

from kbpf.duration import format_duration, parse_duration

API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KIND = "KubeProxyConfiguration"


class Duration(float):
    """Seconds, spelled in Go's syntax outside."""


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the sections: camelCase outside."""


class ClientConnection(Section, frozen=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 5
    burst: int = 10


class Logging(Section, frozen=True):
    """`flush_frequency`, `vmodule` and `options` mean nothing here; kbpf does not buffer its log."""

    format: str = "text"
    flush_frequency: str | int = "5s"
    verbosity: int = 0
    vmodule: tuple[dict[str, str | int], ...] = ()
    options: dict[str, Any] = {}


class Iptables(Section, frozen=True):
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: Duration = Duration(30)
    min_sync_period: Duration = Duration(1)


class Ipvs(Section, frozen=True):
    """Only the periods are used, when the mode is ipvs."""

    sync_period: Duration = Duration(30)
    min_sync_period: Duration = Duration(1)
    scheduler: str = ""
    exclude_cidrs: tuple[str, ...] = msgspec.field(default=(), name="excludeCIDRs")
    strict_arp: bool = msgspec.field(default=False, name="strictARP")
    tcp_timeout: Duration = Duration(0)
    tcp_fin_timeout: Duration = Duration(0)
    udp_timeout: Duration = Duration(0)


class Nftables(Section, frozen=True):
    """Used in place of the section `iptables` when the mode is nftables."""

    masquerade_bit: int = 14
    masquerade_all: bool = False
    sync_period: Duration = Duration(30)
    min_sync_period: Duration = Duration(1)


class Winkernel(Section, frozen=True):
    network_name: str = ""
    source_vip: str = ""
    enable_dsr: bool = msgspec.field(default=False, name="enableDSR")
    root_hns_endpoint_name: str = ""
    forward_health_check_vip: bool = False


class DetectLocal(Section, frozen=True):
    bridge_interface: str = ""
    interface_name_prefix: str = ""


class Conntrack(Section, frozen=True):
    max_per_core: int = 32768
    min: int = 131072
    tcp_established_timeout: Duration = Duration(24 * 3600)
    tcp_close_wait_timeout: Duration = Duration(3600)
    tcp_be_liberal: bool = False
    udp_timeout: Duration = Duration(0)
    udp_stream_timeout: Duration = Duration(0)


class Kbpf(Section, frozen=True):
    """What kube-proxy does not have. An empty text stands for a default that depends on the machine."""

    manifests: tuple[str, ...] = ()
    master: str = ""
    datapath: str = "auto"
    fallback: str = "iptables"
    underlay: str = "residual"
    cgroup_root: str = ""
    bpffs_root: str = "/sys/fs/bpf/kbpf"
    node_ip: str = msgspec.field(default="", name="nodeIP")
    devices: tuple[str, ...] = ()
    pod_devices: tuple[str, ...] = ()
    tc_attachment: str = "auto"
    socket_lb_scope: str = "all"
    hold_node_ports: bool = False
    connection_series: int = 0
    """Of the metric with a label for each Service and backend; 0: there is none."""
    iptables_backend: str = "auto"
    map_entries: dict[str, int] = {}
    """Room by the name of the map, where it is not the default."""


class KubeProxyConfiguration(Section, frozen=True):
    """`healthz_bind_address` and `metrics_bind_address`: empty is the default, "none" is kbpf's word for nowhere."""

    kind: str = KIND
    api_version: str = API_VERSION
    feature_gates: dict[str, bool] = {}
    client_connection: ClientConnection = ClientConnection()
    logging: Logging = Logging()
    hostname_override: str = ""
    bind_address: str = "0.0.0.0"  # noqa: S104  (kube-proxy's default; nothing listens on it)
    healthz_bind_address: str = ""
    metrics_bind_address: str = ""
    bind_address_hard_fail: bool = False
    enable_profiling: bool = False
    show_hidden_metrics_for_version: str = ""
    mode: str = ""
    iptables: Iptables = Iptables()
    ipvs: Ipvs = Ipvs()
    nftables: Nftables = Nftables()
    winkernel: Winkernel = Winkernel()
    detect_local_mode: str = "ClusterCIDR"
    detect_local: DetectLocal = DetectLocal()
    cluster_cidr: str = msgspec.field(default="", name="clusterCIDR")
    node_port_addresses: tuple[str, ...] = ()
    oom_score_adj: int = -999
    conntrack: Conntrack = Conntrack()
    config_sync_period: Duration = Duration(15 * 60)
    port_range: str = ""
    windows_run_as_service: bool = False
    kbpf: Kbpf = Kbpf()


ZERO_IS_DEFAULT = frozenset(
    {
        "bindAddress",
        "clientConnection.contentType",
        "clientConnection.qps",
        "clientConnection.burst",
        "configSyncPeriod",
        "detectLocalMode",
        "iptables.syncPeriod",
        "iptables.minSyncPeriod",
        "ipvs.syncPeriod",
        "ipvs.minSyncPeriod",
        "logging.flushFrequency",
        "logging.format",
        "nftables.syncPeriod",
        "nftables.minSyncPeriod",
    }
)
"""Go cannot tell "0s" from a field that is not there, and kubeadm writes such fields out. Elsewhere zero means zero."""


def decode(tree: object) -> KubeProxyConfiguration:
    """Raises msgspec.ValidationError, whose message ends with the field's path."""
    return msgspec.convert(tree, KubeProxyConfiguration, dec_hook=_decode_hook)


def encode(document: Section) -> dict[str, object]:
    """As plain values: the content of a file, and of /configz."""
    tree: dict[str, object] = msgspec.to_builtins(document, enc_hook=_encode_hook)
    return tree


def _decode_hook(type_: type, value: object) -> object:
    if type_ is not Duration:
        raise NotImplementedError(type_)
    if not isinstance(value, str):
        raise ValueError(f"expected a duration such as 30s, got {value!r}")
    return Duration(parse_duration(value))


def _encode_hook(value: object) -> object:
    if isinstance(value, Duration):
        return format_duration(value)
    raise NotImplementedError(type(value))
