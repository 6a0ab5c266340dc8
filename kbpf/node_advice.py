"""What an operator should know of this node before it carries traffic; nothing here is wrong enough to stop.

Asked once, by whoever makes the datapath and by whoever writes the first rules.
"""

from collections.abc import Callable, Iterator, Set

from kbpf.config import NODE_PORT_WORDS, Config, ListenAddress
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.host.sysctl import Sysctl, Sysctls
from kbpf.model.address import Family, family_of, parse_address, parse_cidr
from kbpf.model.detector import DetectLocalMode
from kbpf.model.node import node_addresses, pod_cidrs
from kbpf.model.objects import Node

UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104  (compared with, not listened on)
LOOPBACK = ("127.0.0.1", "::1")
NODE_PORTS = range(30000, 32768)
"""Of an API server that was not told otherwise; nobody else is told."""


def settings_advice(config: Config, own: Node | None) -> Iterator[str]:
    """kube-proxy's warnings at its start: settings that leave out a family which this node has."""
    if not config.node_port_addresses:
        yield "node ports are open on every address of this node; --nodeport-addresses=primary keeps them to its own"
    addresses = config.node_ips or (node_addresses(own) if own else ())
    families = [family_of(address) for address in addresses]
    if families:
        yield from _range_advice(config, own, families)
        yield from _address_advice(config, families[0])


def _range_advice(config: Config, own: Node | None, families: list[Family]) -> Iterator[str]:
    ranges: dict[str, Set[Family]] = {"--nodeport-addresses": _families_of(config.node_port_addresses)}
    if config.detect_local_mode is DetectLocalMode.CLUSTER_CIDR:
        ranges["--cluster-cidr"] = config.cluster_cidrs.keys()
    elif config.detect_local_mode is DetectLocalMode.NODE_CIDR and own:
        ranges["the Node's podCIDRs"] = pod_cidrs(own).keys()
    for setting, found in ranges.items():
        for family in families if found else ():
            if family not in found:
                place = "the first address" if family is families[0] else "an address"
                yield f"{setting}: no {family.value} range, though {place} of this node is {family.value}"


def _families_of(ranges: tuple[str, ...]) -> Set[Family]:
    """A word stands for addresses of either family."""
    if any(text in NODE_PORT_WORDS for text in ranges):
        return frozenset(Family)
    return {parse_cidr(text)[0] for text in ranges}


def _address_advice(config: Config, primary: Family) -> Iterator[str]:
    listening: dict[str, ListenAddress | None] = {
        "--healthz-bind-address": config.healthz_address,
        "--metrics-bind-address": config.metrics_address,
    }
    for setting, address in listening.items():
        if address and address.host not in (*UNSPECIFIED, *LOOPBACK):
            family = family_of(parse_address(address.host))
            if family is not primary:
                yield f"{setting}: {address} is {family.value}, the first address of this node is {primary.value}"


def port_advice(may_give_out: Callable[[range], bool]) -> Iterator[str]:
    """An answer to such a port of the node may be taken for a call of the Service that has it."""
    if may_give_out(NODE_PORTS):
        yield (
            f"net.ipv4.ip_local_port_range reaches into {NODE_PORTS[0]}-{NODE_PORTS[-1]}, where node ports are: "
            "sockets of this node may get one; net.ipv4.ip_local_reserved_ports keeps them out"
        )


def iptables_advice(settings: IptablesSettings, sysctls: Sysctls) -> Iterator[str]:
    if not settings.detectors and not settings.masquerade_all:
        yield (
            "no range or interface of pods is known (--cluster-cidr, --detect-local-mode): "
            "callers of ClusterIPs from outside the cluster are not masqueraded"
        )
    if sysctls.read(Sysctl.BRIDGE_CALLS_IPTABLES) == 0:
        yield (
            "net.bridge.bridge-nf-call-iptables is 0: between pods on one Linux bridge, "
            "answers come from the pod instead of the Service"
        )
