"""What the configuration means on this very node: its addresses, its detectors, the settings of its rules. Pure."""

from collections.abc import Callable

from kbpf.config import EVERYWHERE, Config, expand_node_port_addresses
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Address, Family, family_of
from kbpf.model.detector import DetectLocalMode, LocalDetector, in_cidr
from kbpf.model.node import node_addresses, pod_cidrs
from kbpf.model.objects import Node

WILDCARDS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104  (kube-proxy's default)
LOOPBACK = {Family.IPV4: Address("127.0.0.1"), Family.IPV6: Address("::1")}


def iptables_settings(
    config: Config, own: Node | None, local: Callable[[], frozenset[Address]], *, is_liberal: bool = False
) -> IptablesSettings:
    """What the rules depend on besides the table.

    `local` lists the addresses of this machine; it is asked only where node ports are not open on all of them.
    `is_liberal`: connection tracking lets TCP packets outside of the window pass.
    """
    addresses = node_ips(config, own)
    ranges = expand_node_port_addresses(config.node_port_addresses, tuple(addresses.values()))
    return IptablesSettings(
        masquerade_bit=config.masquerade_bit,
        masquerade_all=config.masquerade_all,
        detectors=detectors(config, own),
        node_ips=addresses,
        node_port_addresses=_node_port_addresses(ranges, local),
        conntrack_liberal=is_liberal,
        sync_period_s=config.sync_period_s,
        localhost_node_ports=config.localhost_node_ports and any(map(_opens_loopback, ranges[Family.IPV4])),
    )


def own_addresses(config: Config, own: Node | None) -> frozenset[Address]:
    """The addresses by which the cluster knows this node; none, if it does not say."""
    return frozenset(node_ips(config, own).values()) - frozenset(LOOPBACK.values())


def node_ips(config: Config, own: Node | None) -> dict[Family, Address]:
    """This node's address in each family: what the option says, else the Node, else loopback."""
    found = dict(LOOPBACK)
    for addresses in (node_addresses(own) if own else (), config.node_ips):
        found |= {family_of(address): address for address in addresses}
    return found


def health_check_hosts(
    config: Config, own: Node | None, local: Callable[[], frozenset[Address]]
) -> dict[Family, tuple[str, ...]]:
    """Where health check node ports listen: on the addresses of node ports, or on the wildcard when that is all."""
    ranges = expand_node_port_addresses(config.node_port_addresses, tuple(node_ips(config, own).values()))
    addresses = _node_port_addresses(ranges, local)
    return {family: addresses.get(family, (WILDCARDS[family],)) for family in Family}


def detectors(config: Config, own: Node | None) -> dict[Family, LocalDetector]:
    """How pods' traffic is told from other traffic; a family without a detector has no pods to tell."""
    match config.detect_local_mode:
        case DetectLocalMode.CLUSTER_CIDR:
            ranges = config.cluster_cidrs
        case DetectLocalMode.NODE_CIDR:
            ranges = pod_cidrs(own) if own else {}
        case DetectLocalMode.BRIDGE_INTERFACE:
            return {family: LocalDetector(interface=config.pod_interface) for family in Family}
        case DetectLocalMode.INTERFACE_NAME_PREFIX:
            return {family: LocalDetector(interface=f"{config.pod_interface}+") for family in Family}
    return {family: LocalDetector(cidr=cidr) for family, cidr in ranges.items()}


def _node_port_addresses(
    ranges: dict[Family, tuple[str, ...]], local: Callable[[], frozenset[Address]]
) -> dict[Family, tuple[Address, ...]]:
    """The local addresses inside the ranges; a family that is open everywhere is left out."""
    restricted = {family: cidrs for family, cidrs in ranges.items() if cidrs != (EVERYWHERE[family],)}
    addresses = sorted(local()) if restricted else ()
    return {
        family: tuple(a for a in addresses if family_of(a) is family and any(in_cidr(a, cidr) for cidr in cidrs))
        for family, cidrs in restricted.items()
    }


def _opens_loopback(cidr: str) -> bool:
    """Does this range open node ports on loopback? kube-proxy asks for its base address, or for 127.0.0.0 in it."""
    return cidr.startswith("127.") or in_cidr(Address("127.0.0.0"), cidr)
