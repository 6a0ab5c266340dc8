"""What a KubeProxyConfiguration means: the Config that the parts are given. Pure, but for the host's name.

Every wrong value is a WrongValue with the field's path; `loading` says whether a flag or a file had it.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import TypeVar

from kbpf.config import (
    Config,
    ConntrackSettings,
    DatapathWish,
    Fallback,
    IptablesBackend,
    ListenAddress,
    SocketLbScope,
    TcAttachment,
    Underlay,
    cluster_cidrs,
    listen_address,
    node_ips,
    node_name,
    node_port_address,
)
from kbpf.configuration.document import Iptables, KubeProxyConfiguration, Nftables
from kbpf.model.address import Address, family_of, parse_address
from kbpf.model.detector import DetectLocalMode

HEALTHZ_PORT = 10256
METRICS_PORT = 10249
MAX_MAP_ENTRIES = 1 << 24
MAX_SERIES = 100_000
MODES = ("", "iptables", "ipvs", "nftables")
NOWHERE = "none"
UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104  (compared with, not listened on)
INTERFACE_FIELDS = {
    DetectLocalMode.BRIDGE_INTERFACE: "bridgeInterface",
    DetectLocalMode.INTERFACE_NAME_PREFIX: "interfaceNamePrefix",
}

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=Enum)


class WrongValue(Exception):
    """`path` is that of the field, `words` say what is wrong with it."""

    def __init__(self, path: str, words: str) -> None:
        self.path, self.words = path, words
        super().__init__(f"{path}: {words}")


def config_of(document: KubeProxyConfiguration, map_names: tuple[str, ...] = ()) -> Config:
    """`map_names` are those whose room can be set. Raises WrongValue."""
    _check_ignored(document)
    _check_conntrack(document)
    section, rules = rules_section(document)
    sync_period_s, min_sync_period_s = _periods(document)
    mode = _choice("detectLocalMode", DetectLocalMode, document.detect_local_mode)
    return Config(
        manifests=document.kbpf.manifests,
        datapath=_choice("kbpf.datapath", DatapathWish, document.kbpf.datapath),
        fallback=_choice("kbpf.fallback", Fallback, document.kbpf.fallback),
        underlay=_choice("kbpf.underlay", Underlay, document.kbpf.underlay),
        cgroup_root=Path(document.kbpf.cgroup_root) if document.kbpf.cgroup_root else None,
        bpffs_root=Path(document.kbpf.bpffs_root),
        node_name=_read("hostnameOverride", node_name, document.hostname_override),
        node_ips=_node_ips(document),
        cluster_cidrs=_read("clusterCIDR", cluster_cidrs, document.cluster_cidr),
        detect_local_mode=mode,
        pod_interface=_pod_interface(document, mode),
        masquerade_all=rules.masquerade_all,
        masquerade_bit=_within(f"{section}.masqueradeBit", rules.masquerade_bit, 0, 31),
        localhost_node_ports=document.iptables.localhost_node_ports,
        node_port_addresses=tuple(_node_port_addresses(document)),
        devices=document.kbpf.devices,
        pod_devices=document.kbpf.pod_devices,
        socket_lb_scope=_choice("kbpf.socketLbScope", SocketLbScope, document.kbpf.socket_lb_scope),
        hold_node_ports=document.kbpf.hold_node_ports,
        connection_series=_within("kbpf.connectionSeries", document.kbpf.connection_series, 0, MAX_SERIES),
        tc_attachment=_choice("kbpf.tcAttachment", TcAttachment, document.kbpf.tc_attachment),
        bpf_entries=_map_entries(document, map_names),
        sync_period_s=sync_period_s,
        min_sync_period_s=min_sync_period_s,
        iptables_backend=_choice("kbpf.iptablesBackend", IptablesBackend, document.kbpf.iptables_backend),
        conntrack=_conntrack(document),
        healthz_address=_listen(document, "healthzBindAddress", document.healthz_bind_address, HEALTHZ_PORT),
        metrics_address=_listen(document, "metricsBindAddress", document.metrics_bind_address, METRICS_PORT),
        must_listen=document.bind_address_hard_fail,
        oom_score_adjustment=_within("oomScoreAdj", document.oom_score_adj, -1000, 1000),
        master=document.kbpf.master,
        kubeconfig=Path(document.client_connection.kubeconfig) if document.client_connection.kubeconfig else None,
    )


def rules_section(document: KubeProxyConfiguration) -> tuple[str, Iptables | Nftables]:
    """Which section speaks of masquerading: each mode has its own, whatever the datapath."""
    return ("nftables", document.nftables) if document.mode == "nftables" else ("iptables", document.iptables)


def default_address(document: KubeProxyConfiguration, path: str) -> ListenAddress:
    """kube-proxy's defaults have the family of the bind address."""
    is_ipv6 = ":" in document.bind_address
    if path == "healthzBindAddress":
        return ListenAddress("::" if is_ipv6 else "0.0.0.0", HEALTHZ_PORT)  # noqa: S104
    return ListenAddress("::1" if is_ipv6 else "127.0.0.1", METRICS_PORT)


def _periods(document: KubeProxyConfiguration) -> tuple[float, float]:
    if document.mode == "ipvs":
        section, sync_period, minimum = "ipvs", document.ipvs.sync_period, document.ipvs.min_sync_period
    else:
        section, rules = rules_section(document)
        sync_period, minimum = rules.sync_period, rules.min_sync_period
    if sync_period <= 0:
        raise WrongValue(f"{section}.syncPeriod", "must be greater than 0")
    if not 0 <= minimum <= sync_period:
        raise WrongValue(f"{section}.minSyncPeriod", f"must lie between 0 and {section}.syncPeriod")
    return float(sync_period), float(minimum)


def _node_ips(document: KubeProxyConfiguration) -> tuple[Address, ...]:
    """A bind address is one of the node's own, unless --node-ip names another one of its family."""
    bound = _read("bindAddress", parse_address, document.bind_address)
    named = _read("kbpf.nodeIP", node_ips, document.kbpf.node_ip)
    if bound in UNSPECIFIED or family_of(bound) in map(family_of, named):
        return named
    return (bound, *named)


def _node_port_addresses(document: KubeProxyConfiguration) -> Iterator[str]:
    for index, text in enumerate(document.node_port_addresses):
        yield _read(f"nodePortAddresses[{index}]", node_port_address, text)
    if not document.node_port_addresses and document.mode == "nftables":
        yield "primary"


def _pod_interface(document: KubeProxyConfiguration, mode: DetectLocalMode) -> str:
    field = INTERFACE_FIELDS.get(mode)
    if field is None:
        return ""
    found = {
        "bridgeInterface": document.detect_local.bridge_interface,
        "interfaceNamePrefix": document.detect_local.interface_name_prefix,
    }[field]
    if not found:
        raise WrongValue(f"detectLocal.{field}", f"must not be empty when detectLocalMode is {mode.value}")
    return found


def _listen(document: KubeProxyConfiguration, path: str, text: str, default_port: int) -> ListenAddress | None:
    if text == NOWHERE:
        return None
    if not text:
        return default_address(document, path)
    return _read(path, lambda text: listen_address(text, default_port), text)


def _map_entries(document: KubeProxyConfiguration, names: tuple[str, ...]) -> dict[str, int]:
    for name, entries in document.kbpf.map_entries.items():
        if name not in names:
            raise WrongValue(f"kbpf.mapEntries.{name}", f"no such map; there are {', '.join(names)}")
        _within(f"kbpf.mapEntries.{name}", entries, 1, MAX_MAP_ENTRIES)
    return dict(document.kbpf.map_entries)


def _conntrack(document: KubeProxyConfiguration) -> ConntrackSettings:
    """Whole seconds, rounded down as kube-proxy does it."""
    wanted = document.conntrack
    return ConntrackSettings(
        max_per_core=wanted.max_per_core,
        min=wanted.min,
        tcp_timeout_established_s=int(wanted.tcp_established_timeout),
        tcp_timeout_close_wait_s=int(wanted.tcp_close_wait_timeout),
        tcp_be_liberal=wanted.tcp_be_liberal,
        udp_timeout_s=int(wanted.udp_timeout),
        udp_timeout_stream_s=int(wanted.udp_stream_timeout),
    )


def _check_conntrack(document: KubeProxyConfiguration) -> None:
    wanted = document.conntrack
    for field, number in (
        ("maxPerCore", wanted.max_per_core),
        ("min", wanted.min),
        ("tcpEstablishedTimeout", wanted.tcp_established_timeout),
        ("tcpCloseWaitTimeout", wanted.tcp_close_wait_timeout),
        ("udpTimeout", wanted.udp_timeout),
        ("udpStreamTimeout", wanted.udp_stream_timeout),
    ):
        if number < 0:
            raise WrongValue(f"conntrack.{field}", "must not be negative")


def _check_ignored(document: KubeProxyConfiguration) -> None:
    """What kbpf has no use for and kube-proxy refuses all the same."""
    if document.mode not in MODES:
        raise WrongValue("mode", f"{document.mode!r} is not one of {', '.join(filter(None, MODES))}")
    if document.client_connection.burst < 0:
        raise WrongValue("clientConnection.burst", "must not be negative")
    if document.config_sync_period <= 0:
        raise WrongValue("configSyncPeriod", "must be greater than 0")
    if document.logging.format not in ("text", "json"):
        raise WrongValue("logging.format", f"{document.logging.format!r} is not one of text, json")
    if document.logging.verbosity < 0:
        raise WrongValue("logging.verbosity", "must not be negative")


def _read(path: str, read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except ValueError as error:
        raise WrongValue(path, str(error)) from error


def _choice(path: str, values: type[Choice], text: str) -> Choice:
    try:
        return values(text)
    except ValueError as error:
        raise WrongValue(path, f"{text!r} is not one of {', '.join(each.value for each in values)}") from error


def _within(path: str, number: int, lowest: int, highest: int) -> int:
    if not lowest <= number <= highest:
        raise WrongValue(path, f"{number} is not between {lowest} and {highest}")
    return number
