"""From the rows of the maps back to frontends with their backends, in words that people know. Pure.

`kbpf status` prints what it answers. Rows that nobody could follow, as after somebody wrote into a map, are left out
here and named by `verify`.
"""

from collections.abc import Iterator

from kbpf.datapath.ebpf.ids import backend_row
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    FIRST_RESERVED_ID,
    NODE_PORT_ADDRESS,
    DeferReason,
    FrontendFlag,
    FrontendKey,
    FrontendValue,
    Kind,
    NameKey,
    ServiceKey,
    ServiceValue,
    SlotKey,
    View,
)
from kbpf.model.address import family_of, unpacked
from kbpf.model.held import HeldFrontend
from kbpf.model.names import Protocol
from kbpf.model.table import Backend, FrontendKind
from kbpf.model.table import FrontendKey as TableKey

_KINDS = {
    Kind.CLUSTER_IP: FrontendKind.CLUSTER_IP,
    Kind.NODE_PORT: FrontendKind.NODE_PORT,
    Kind.EXTERNAL_IP: FrontendKind.EXTERNAL_IP,
    Kind.LOAD_BALANCER_IP: FrontendKind.LOAD_BALANCER_IP,
}
_PROTOCOLS = {protocol.number: protocol for protocol in Protocol}
_NODE_PORTS = {address: family for family, address in NODE_PORT_ADDRESS.items()}
FOR_ALL = FrontendFlag.DEFER_SOCKETS | FrontendFlag.DEFER_PACKETS


def frontends(rows: Rows) -> Iterator[HeldFrontend]:
    for key, value in sorted(rows.frontends.items()):
        if value.kind not in _KINDS or key.protocol not in _PROTOCOLS or value.service_id >= FIRST_RESERVED_ID:
            continue
        service = rows.services.get(ServiceKey(value.service_id))
        yield HeldFrontend(
            table_key(key),
            _KINDS[Kind(value.kind)],
            name_of(rows, value.service_id),
            tuple(_backends(rows, service, View.CLUSTER)) if service else (),
            tuple(_backends(rows, service, View.LOCAL)) if service else (),
            by_programs=value.flags & FOR_ALL != FOR_ALL,
            reason=reason_of(value),
        )


def name_of(rows: Rows, service_id: int) -> str:
    return str(rows.names.get(NameKey(service_id), ""))


def reason_of(value: FrontendValue) -> str:
    """Why rules treat the frontend, in the words of metrics; empty when they do not."""
    if not value.defer_reason:
        return ""
    known = value.defer_reason in DeferReason._value2member_map_
    return DeferReason(value.defer_reason).name.lower().replace("_", "-") if known else str(value.defer_reason)


def table_key(key: FrontendKey) -> TableKey:
    protocol = _PROTOCOLS[key.protocol]
    if key.address in _NODE_PORTS:
        return TableKey(_NODE_PORTS[key.address], None, key.port, protocol)
    address = unpacked(key.address)
    return TableKey(family_of(address), address, key.port, protocol)


def backends(rows: Rows, service: ServiceValue, view: View) -> Iterator[Backend | None]:
    """In the order of the slots; None where a slot leads to no backend."""
    count = service.n_local if view is View.LOCAL else service.n_cluster
    for position in range(count):
        slot = rows.slots.get(SlotKey(service.id, service.generation, view, position))
        if slot is None or slot[:2] != (service.id, service.generation):
            yield None
        else:
            row = backend_row(slot.backend, slot.backend_id)
            yield Backend(unpacked(row.address), row.port)


def _backends(rows: Rows, service: ServiceValue, view: View) -> Iterator[Backend]:
    return filter(None, backends(rows, service, view))
