"""How the eBPF datapath is put together from the configuration and the Node, and what it must know of them.

Called by `composition`, which imports it only where eBPF runs, or ran: half of kbpf's modules are behind it.
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from kbpf.clock import Clock
from kbpf.config import Config, SocketLbScope, TcAttachment
from kbpf.datapath.ebpf import factory, probe
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.collector import FlowCollector, FlowTimeouts
from kbpf.datapath.ebpf.connected import ConnectedSockets
from kbpf.datapath.ebpf.node import NodeSettings
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.uplinks import Way
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.static import is_loopback
from kbpf.host.addresses import local_addresses
from kbpf.host.clsact import ClsactFilters
from kbpf.host.devices import first_addresses, uplinks
from kbpf.host.network_watch import NetworkWatch
from kbpf.host.udp_sockets import UdpSockets, why_sockets_cannot_be_ended
from kbpf.model.address import Address, Family, family_of
from kbpf.model.device import Device
from kbpf.model.objects import Node
from kbpf.node_settings import detectors, iptables_settings, own_addresses

log = logging.getLogger(__name__)

WAYS = {TcAttachment.AUTO: tuple(Way), TcAttachment.TCX: (Way.TCX,), TcAttachment.CLSACT: (Way.CLSACT,)}
UDP_TIMEOUT_S, UDP_STREAM_TIMEOUT_S = 30, 120
"""The kernel's own, for connection tracking."""


def make_datapath(config: Config, own: Node | None, clock: Clock) -> EbpfDatapath:
    return factory.create(
        config.bpffs_root,
        config.cgroup_root,
        NodeAddresses(config, own),
        ClsactFilters(),
        uplinks=lambda: find_uplinks(config, own),
        ways=WAYS[config.tc_attachment],
        node=node_settings(config, own),
        masquerade_all=config.masquerade_all,
        can_end_sockets=not why_sockets_cannot_be_ended(),
        node_sockets_only=config.socket_lb_scope is SocketLbScope.HOST,
        holds_node_ports=config.hold_node_ports,
        sizes=config.bpf_entries,
        clock=clock,
        flow_timeouts=flow_timeouts(config),
    )


def connected_sockets(config: Config) -> UdpSockets:
    """Those that the hooks have translated, to be ended when their endpoint leaves."""
    reason = why_sockets_cannot_be_ended()
    if reason:
        log.warning(f"iptables serves UDP to sockets of this node, as connected ones cannot be ended: {reason}")
    return UdpSockets(ConnectedSockets(config.bpffs_root), factory.netns_cookie)


class NodeAddresses:
    """This node's addresses and what they mean, asked for at each full sync.

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
    found = uplinks(own_addresses(config, own), (*config.devices, *config.pod_devices))
    telling = detectors(config, own).values()
    return tuple(replace(each, is_of_pods=any(detector.is_for(each.name) for detector in telling)) for each in found)


def serves_packets(config: Config) -> bool:
    """Does this kernel let programs serve packets from elsewhere, in a way that may be tried?"""
    return probe.way_onto_devices(probe.packet_path(ClsactFilters(), WAYS[config.tc_attachment])) is not None


def packet_path_services(
    config: Config, clock: Clock, changed: Callable[[], None]
) -> list[NetworkWatch | FlowCollector]:
    """What runs beside the control loop for packets from elsewhere; `changed` asks for a full sync."""
    timeouts = flow_timeouts(config)
    return [
        NetworkWatch(lambda: (local_addresses(), find_uplinks(config, None)), changed),
        FlowCollector(lambda: factory.open_maps(config.bpffs_root), timeouts, clock, changed),
    ]


def flow_timeouts(config: Config) -> FlowTimeouts:
    """Those of connection tracking, as far as kube-proxy sets them."""
    conntrack, node = config.conntrack, node_settings(config, None)
    timeouts = FlowTimeouts(udp_s=node.udp_timeout_s, udp_stream_s=node.udp_stream_timeout_s)
    if conntrack.tcp_timeout_established_s:
        timeouts = replace(timeouts, established_s=conntrack.tcp_timeout_established_s)
    if conntrack.tcp_timeout_close_wait_s:
        timeouts = replace(timeouts, close_wait_s=conntrack.tcp_timeout_close_wait_s)
    return timeouts


def local_flags(
    config: Config, own: Node | None, local: frozenset[Address], primary: frozenset[Address]
) -> dict[Address, LocalFlag]:
    """What each address of this machine means to the programs; open node ports are those of the rules."""
    settings = iptables_settings(config, own, lambda: local)
    return {address: _local_flag(address, settings, is_primary=address in primary) for address in local}


def _local_flag(address: Address, settings: IptablesSettings, *, is_primary: bool) -> LocalFlag:
    family = family_of(address)
    flag = LocalFlag(0)
    if is_loopback(address):
        flag |= LocalFlag.LOOPBACK
    elif is_primary:
        flag |= LocalFlag.PRIMARY
    is_open = address in settings.node_port_addresses.get(family, (address,))
    if is_open and (not is_loopback(address) or settings.has_localhost_node_ports(family)):
        flag |= LocalFlag.NODE_PORT
    return flag


def node_settings(config: Config, own: Node | None) -> NodeSettings:
    """What the programs must know of the node, addresses apart."""
    found = detectors(config, own)
    return NodeSettings(
        detecting=frozenset(found),
        pod_ranges=tuple(sorted(detector.cidr for detector in found.values() if detector.cidr)),
        masquerade_mark=1 << config.masquerade_bit,
        udp_timeout_s=config.conntrack.udp_timeout_s or UDP_TIMEOUT_S,
        udp_stream_timeout_s=config.conntrack.udp_timeout_stream_s or UDP_STREAM_TIMEOUT_S,
    )
