"""Which frontends the programs leave to iptables, and why: what they cannot treat exactly as kube-proxy does.

Pure. `encode` writes a "leave alone" entry for each such frontend; the composite datapath gives `residue`, the service
port with nothing but those frontends, to the iptables renderer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from kbpf.datapath.ebpf.layout import DeferReason
from kbpf.model.address import Family
from kbpf.model.names import Protocol, ServiceName, ServicePortName
from kbpf.model.table import Frontend, FrontendKind, Outcome, ResolvedPort


class PortKey(NamedTuple):
    """One service port in one family: what the maps call a service."""

    name: ServicePortName
    family: Family

    @classmethod
    def of(cls, port: ResolvedPort) -> "PortKey":
        return cls(port.name, port.family)


@dataclass(frozen=True, slots=True)
class DeferSettings:
    masquerade_all: bool = False
    can_reject: bool = True
    """The kernel lets a hook choose the error of a call (bpf_set_retval, Linux 5.18)."""
    opted_out: frozenset[ServiceName] = frozenset()
    spilled: frozenset[PortKey] = frozenset()
    """Service ports that do not fit the maps."""


def defer_reason(port: ResolvedPort, frontend: Frontend, settings: DeferSettings) -> DeferReason | None:
    """None: the programs serve this frontend."""
    return _port_reason(port, settings) or _frontend_reason(port, frontend, settings)


def _port_reason(port: ResolvedPort, settings: DeferSettings) -> DeferReason | None:
    if port.protocol is Protocol.SCTP:
        return DeferReason.SCTP
    if port.name.service in settings.opted_out:
        return DeferReason.OPT_OUT
    if PortKey.of(port) in settings.spilled:
        return DeferReason.SPILLED
    # A packet that never passes netfilter cannot be given the node's address.
    return DeferReason.MASQUERADE_ALL if settings.masquerade_all else None


def _frontend_reason(port: ResolvedPort, frontend: Frontend, settings: DeferSettings) -> DeferReason | None:
    if frontend.kind is FrontendKind.LOAD_BALANCER_IP and port.source_ranges:
        return DeferReason.SOURCE_RANGES
    # Clients elsewhere reach these through netfilter in any case.
    if frontend.kind is not FrontendKind.CLUSTER_IP:
        return DeferReason.EXTERNAL
    if not settings.can_reject and port.internal.outcome is Outcome.REJECT:
        return DeferReason.NO_RETVAL
    return None


def deferred(port: ResolvedPort, frontends: Iterable[Frontend], settings: DeferSettings) -> dict[Frontend, DeferReason]:
    """Those of `frontends` that the programs leave alone."""
    reasons = {frontend: defer_reason(port, frontend, settings) for frontend in frontends}
    return {frontend: reason for frontend, reason in reasons.items() if reason is not None}


def residue(port: ResolvedPort, frontends: Iterable[Frontend], settings: DeferSettings) -> ResolvedPort | None:
    """`port` with the deferred ones of `frontends` only: what iptables must render. None: nothing is left to it.

    `frontends` are those that the port owns in the table. In a table of residues nobody could tell any more that a
    frontend belongs to a service port whose other frontends are all served by the programs.
    """
    left = tuple(deferred(port, frontends, settings))
    return msgspec.structs.replace(port, frontends=left) if left else None
