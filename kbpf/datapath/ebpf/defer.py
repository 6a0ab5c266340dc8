"""Which frontends the programs leave to iptables, and why: what they cannot treat exactly as kube-proxy does.

A frontend has two kinds of callers, sockets of this node and packets from elsewhere, and each may be left to iptables
alone. Pure. `encode` writes who is to "leave alone" which frontend; the composite datapath gives `residue`, the service
port with the frontends that iptables treats for either of them, to the iptables renderer.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from kbpf.datapath.ebpf.shapes import DeferReason
from kbpf.model.address import Family
from kbpf.model.names import Protocol, ServicePortName
from kbpf.model.table import Frontend, FrontendKind, Outcome, ResolvedPort


class PortKey(NamedTuple):
    """One service port in one family: what the maps call a service."""

    name: ServicePortName
    family: Family

    @classmethod
    def of(cls, port: ResolvedPort) -> "PortKey":
        return cls(port.name, port.family)


class DeferSettings(msgspec.Struct, frozen=True):
    masquerade_all: bool = False
    can_reject: bool = True
    """The kernel lets a hook choose the error of a call (bpf_set_retval, Linux 5.18)."""
    can_end_sockets: bool = True
    """A connected UDP socket can be ended when its backend has left."""
    serves_packets: bool = False
    """The packet path is in force on some device."""
    spilled: frozenset[PortKey] = frozenset()
    """Service ports that do not fit the maps."""


class Deferral(NamedTuple):
    """Why iptables treats a frontend, for each kind of caller; NONE: the programs do."""

    sockets: DeferReason = DeferReason.NONE
    packets: DeferReason = DeferReason.NONE

    @property
    def reason(self) -> DeferReason:
        """The one to tell people."""
        return self.sockets or self.packets

    @property
    def is_complete(self) -> bool:
        return bool(self.sockets and self.packets)


Deferrals = Mapping[Frontend, Deferral]
SERVED = Deferral()


def deferral(port: ResolvedPort, frontend: Frontend, settings: DeferSettings) -> Deferral:
    reason = _port_reason(port, settings)
    if reason:
        return Deferral(reason, reason)
    return Deferral(_sockets_reason(port, frontend, settings), _packets_reason(frontend, settings))


def _port_reason(port: ResolvedPort, settings: DeferSettings) -> DeferReason:
    if port.protocol is Protocol.SCTP:
        return DeferReason.SCTP
    if port.wants_rules:
        return DeferReason.OPT_OUT
    if settings.spilled and PortKey.of(port) in settings.spilled:
        return DeferReason.SPILLED
    # A packet that never passes netfilter cannot be given the node's address.
    return DeferReason.MASQUERADE_ALL if settings.masquerade_all else DeferReason.NONE


def _sockets_reason(port: ResolvedPort, frontend: Frontend, settings: DeferSettings) -> DeferReason:
    if frontend.kind is FrontendKind.LOAD_BALANCER_IP and port.source_ranges:
        # The source address of a connection is not known before it is made.
        return DeferReason.SOURCE_RANGES
    if not settings.can_reject and port.target(frontend).outcome is Outcome.REJECT:
        return DeferReason.NO_RETVAL
    if not settings.can_end_sockets and port.protocol is Protocol.UDP:
        # What conntrack translates can be forgotten there.
        return DeferReason.NO_DESTROY
    return DeferReason.NONE


def _packets_reason(frontend: Frontend, settings: DeferSettings) -> DeferReason:
    # A ClusterIP is for clients inside, and theirs are sockets: for strangers alone there are no rules.
    if settings.serves_packets or frontend.kind is FrontendKind.CLUSTER_IP:
        return DeferReason.NONE
    return DeferReason.EXTERNAL


def deferrals(port: ResolvedPort, frontends: Iterable[Frontend], settings: DeferSettings) -> dict[Frontend, Deferral]:
    """Those of `frontends` that the programs do not treat for everybody."""
    found = {frontend: deferral(port, frontend, settings) for frontend in frontends}
    return {frontend: each for frontend, each in found.items() if each.reason}


def residue(port: ResolvedPort, frontends: Iterable[Frontend], settings: DeferSettings) -> ResolvedPort | None:
    """`port` with the deferred ones of `frontends` only: what iptables must render. None: nothing is left to it.

    `frontends` are those that the port owns in the table. In a table of residues nobody could tell any more that a
    frontend belongs to a service port whose other frontends are all served by the programs.
    """
    left = tuple(deferrals(port, frontends, settings))
    return msgspec.structs.replace(port, frontends=left) if left else None
