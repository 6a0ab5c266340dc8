"""From a decided service port to the rows of the maps, given its ids and generation. Pure; decides nothing.

`Encoded` is the short form that the daemon remembers for each service port; its rows follow from it. `installed` makes
one for every service port it is shown, and `plan` turns the difference of the rows into writes.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from kbpf.datapath.ebpf import layout, shapes
from kbpf.datapath.ebpf.defer import SERVED, Deferral, Deferrals
from kbpf.datapath.ebpf.ids import BackendAddress, backend_address
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    FrontendFlag,
    FrontendKey,
    FrontendValue,
    Kind,
    MembershipKey,
    MembershipValue,
    NameKey,
    NameValue,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SlotValue,
    SourceRangeKey,
    SourceRangeValue,
)
from kbpf.model.address import Address, Family, family_of, packed
from kbpf.model.table import Backend, Frontend, FrontendKind, Outcome, ResolvedPort, Target, View

OPEN_END = 2**32 - 1
"""The last generation of who is a member until further notice: no write when others come or go."""

UNREADABLE = 0

SERVICE_BITS, V4_MAPPED_BITS = 32, 96
"""What stands before the address in the key of a source range, and before the IPv4 address in that."""

AddressOf = Callable[[int], BackendAddress]
"""What a backend id stands for."""

FrontendRows = tuple[tuple[FrontendKey, FrontendValue], ...]

_KINDS = {
    FrontendKind.CLUSTER_IP: Kind.CLUSTER_IP.value,
    FrontendKind.NODE_PORT: Kind.NODE_PORT.value,
    FrontendKind.EXTERNAL_IP: Kind.EXTERNAL_IP.value,
    FrontendKind.LOAD_BALANCER_IP: Kind.LOAD_BALANCER_IP.value,
}
_VIEWS = {View.CLUSTER: shapes.View.CLUSTER.value, View.LOCAL: shapes.View.LOCAL.value}
# Whoever forwards has backends, and the verdict is not looked at.
_VERDICTS = {
    Outcome.FORWARD: shapes.Verdict.REJECT.value,
    Outcome.REJECT: shapes.Verdict.REJECT.value,
    Outcome.DROP: shapes.Verdict.DROP.value,
}


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """One service port in one family as the maps hold it. Service id 0: all its frontends are left to iptables."""

    frontends: FrontendRows = ()
    service_id: int = 0
    generation: int = 0
    cluster: tuple[int, ...] = ()
    """Backend ids in the order of the slots; UNREADABLE where `adopt` found none, so that the list is written anew."""
    local: tuple[int, ...] = ()
    affinity_timeout_s: int = 0
    source_ranges: tuple[SourceRangeKey, ...] = ()
    name: str = ""
    """For people; empty with service id 0, whose frontends are named by the rules."""
    kept: tuple[int, ...] = ()
    """Sorted; backends beside the cluster list whose UDP flows stay with them."""

    @property
    def lists(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.cluster, self.local

    @property
    def backends(self) -> frozenset[int]:
        return frozenset(self.cluster + self.local + self.kept) - {UNREADABLE}

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows it has, by map."""
        slots = len(self.cluster) + len(self.local)
        return {
            layout.FRONTENDS.name: len(self.frontends),
            layout.SERVICES.name: 1 if self.service_id else 0,
            layout.SLOTS.name: slots,
            layout.MEMBERSHIP.name: slots + len(self.kept),
            layout.SOURCE_RANGES.name: len(self.source_ranges),
            layout.NAMES.name: 1 if self.service_id else 0,
        }

    def add_to(self, rows: Rows, address_of: AddressOf) -> None:
        rows.frontends.update(self.frontends)
        if not self.service_id:
            return
        rows.services[ServiceKey(self.service_id)] = ServiceValue(
            self.generation, len(self.cluster), len(self.local), self.service_id, self.affinity_timeout_s
        )
        rows.names[NameKey(self.service_id)] = NameValue.of(self.name)
        rows.slots.update(self._slots(address_of))
        rows.membership.update(self._membership())
        rows.source_ranges.update((key, SourceRangeValue(key.service_id)) for key in self.source_ranges)

    def _slots(self, address_of: AddressOf) -> Iterator[tuple[SlotKey, SlotValue]]:
        service_id, generation = self.service_id, self.generation
        for view, backends in enumerate(self.lists):
            for position, backend in enumerate(backends):
                yield (
                    SlotKey(service_id, generation, view, position),
                    SlotValue(service_id, generation, backend, address_of(backend)),
                )

    def _membership(self) -> Iterator[tuple[MembershipKey, MembershipValue]]:
        service_id, generation = self.service_id, self.generation
        for view, backends in enumerate((*self.lists, self.kept)):
            for backend in backends:
                yield (
                    MembershipKey(service_id, backend, view),
                    MembershipValue(generation, OPEN_END, service_id, backend),
                )


def frontend_rows(
    port: ResolvedPort, frontends: Iterable[Frontend], deferrals: Deferrals, service_id: int
) -> FrontendRows:
    """An address that a Service lists twice counts as what it is listed as first."""
    rows: dict[FrontendKey, FrontendValue] = {}
    for frontend in frontends:
        key, deferral = frontend_key(port, frontend), deferrals.get(frontend, SERVED)
        if key not in rows:
            rows[key] = _value(port, frontend, key, service_id, deferral)
    return tuple(rows.items())


def source_ranges(port: ResolvedPort, frontends: FrontendRows, service_id: int) -> tuple[SourceRangeKey, ...]:
    """For the frontends that say so."""
    if not port.source_ranges or not any(value.flags & FrontendFlag.SOURCE_RANGES for _, value in frontends):
        return ()
    return tuple(sorted({source_range(service_id, cidr) for cidr in port.source_ranges}))


def source_range(service_id: int, cidr: str) -> SourceRangeKey:
    address, _, length = cidr.partition("/")
    family_bits = V4_MAPPED_BITS if family_of(address) is Family.IPV4 else 0
    return SourceRangeKey(SERVICE_BITS + family_bits + int(length), service_id, packed(Address(address)))


def backend_addresses(port: ResolvedPort, backends: Iterable[Backend]) -> list[BackendAddress]:
    protocol = port.protocol.number
    return [backend_address(packed(address), number, protocol) for address, number, _ in backends]


def frontend_key(port: ResolvedPort, frontend: Frontend) -> FrontendKey:
    address = shapes.NODE_PORT_ADDRESS[port.family] if frontend.address is None else packed(frontend.address)
    return FrontendKey(address, frontend.port, port.protocol.number)


def _flags(port: ResolvedPort, frontend: Frontend, deferral: Deferral) -> int:
    flags = FrontendFlag.DEFER_SOCKETS.value if deferral.sockets else 0
    if deferral.packets:
        return flags | FrontendFlag.DEFER_PACKETS.value
    # Without endpoints nobody is let in, and nobody is told apart: the refusal is for all.
    is_guarded = frontend.kind is FrontendKind.LOAD_BALANCER_IP and port.source_ranges and port.has_any_endpoint
    return flags | (FrontendFlag.SOURCE_RANGES.value if is_guarded else 0)


def _value(
    port: ResolvedPort, frontend: Frontend, key: FrontendKey, service_id: int, deferral: Deferral
) -> FrontendValue:
    kind, flags = _KINDS[frontend.kind], _flags(port, frontend, deferral)
    if deferral.is_complete:
        # Nothing of the service port: a row that only says "leave alone" need not change with endpoints.
        return FrontendValue(*key, kind, 0, flags, deferral.reason.value, 0, 0, 0, 0)
    internal, external = _internal(port, frontend), port.target(frontend)
    return FrontendValue(
        *key,
        kind,
        service_id,
        flags,
        deferral.reason.value,
        _VIEWS[internal.view],
        _VERDICTS[internal.outcome],
        _VIEWS[external.view],
        _VERDICTS[external.outcome],
    )


def _internal(port: ResolvedPort, frontend: Frontend) -> Target:
    """Sockets on this node use the cluster list on external frontends, whatever externalTrafficPolicy says."""
    if frontend.kind is FrontendKind.CLUSTER_IP:
        return port.internal
    return Target(View.CLUSTER, port.external.outcome)
