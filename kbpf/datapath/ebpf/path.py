"""The rows that a flow meets on its way through the maps, as lines of `dump`. Pure; shown by `kbpf explain`."""

from collections.abc import Iterator

from kbpf.datapath.ebpf import text
from kbpf.datapath.ebpf.layout import FRONTENDS, LOCAL_ADDR, SERVICES, SLOTS
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    NODE_PORT_ADDRESS,
    FrontendKey,
    FrontendValue,
    LocalAddrKey,
    NameKey,
    ServiceKey,
    SlotKey,
    View,
)
from kbpf.model.address import Address, family_of, packed
from kbpf.model.flow import Flow, Origin

SHOWN_SLOTS = 8


def rows_met(rows: Rows, flow: Flow) -> Iterator[str]:
    local = LocalAddrKey(packed(Address("127.0.0.1") if flow.destination.startswith("127.") else flow.destination))
    if local in rows.local_addr:
        yield text.row_line(LOCAL_ADDR, local, rows.local_addr[local])
    exact = FrontendKey(packed(flow.destination), flow.port, flow.protocol.number)
    node_port = exact._replace(address=NODE_PORT_ADDRESS[family_of(flow.destination)])
    for key in (exact, node_port) if local in rows.local_addr else (exact,):
        if key in rows.frontends:
            yield text.row_line(FRONTENDS, key, rows.frontends[key])
            yield from _behind(rows, flow, rows.frontends[key])
            return
    yield f"no row in frontends for {text.key_line(FRONTENDS, exact).removeprefix('frontends ')}"


def _behind(rows: Rows, flow: Flow, frontend: FrontendValue) -> Iterator[str]:
    service = rows.services.get(ServiceKey(frontend.service_id))
    if service is None:
        return
    name = rows.names.get(NameKey(frontend.service_id))
    yield text.row_line(SERVICES, ServiceKey(frontend.service_id), service) + (f", which is {name}" if name else "")
    view = View(frontend.external_view if flow.origin is Origin.OUTSIDE else frontend.internal_view)
    count = service.n_local if view is View.LOCAL else service.n_cluster
    for position in range(min(count, SHOWN_SLOTS)):
        key = SlotKey(service.id, service.generation, view, position)
        slot = rows.slots.get(key)
        yield f"{text.key_line(SLOTS, key)}: leads nowhere" if slot is None else text.row_line(SLOTS, key, slot)
    if count > SHOWN_SLOTS:
        yield f"and {count - SHOWN_SLOTS} more slots"
