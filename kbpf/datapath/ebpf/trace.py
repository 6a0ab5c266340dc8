"""Walks a flow through the rows of the maps, step by step as `bpf/lb.h` does: what would a program answer?

Pure. Tests compare it with the reference model, `kbpf explain` shows it. A choice is the set of what may be chosen:
chance, affinity and remembered choices stay within it.
"""

from typing import NamedTuple

from msgspec.structs import replace

from kbpf.datapath.ebpf.encode import SERVICE_BITS
from kbpf.datapath.ebpf.ids import backend_row
from kbpf.datapath.ebpf.node import POD_RANGES
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    NODE_PORT_ADDRESS,
    ConfigFlag,
    DeferReason,
    FrontendFlag,
    FrontendKey,
    FrontendValue,
    Kind,
    LocalAddrKey,
    LocalAddrValue,
    LocalFlag,
    Reason,
    ServiceKey,
    ServiceValue,
    SlotKey,
    View,
)
from kbpf.datapath.ebpf.shapes import Verdict as EmptyVerdict
from kbpf.model.address import Address, Family, family_of, packed, unpacked
from kbpf.model.flow import DROP, PASS, REJECT, Action, Flow, Origin, Verdict
from kbpf.model.names import Protocol
from kbpf.model.table import Backend


class Trace(NamedTuple):
    """`reason` is the hook's own word for how the call left it, None when no hook sees the flow.

    `defer_reason` says that iptables treats such flows to the frontend: what happens is told by the residue.
    """

    verdict: Verdict
    reason: Reason | None = None
    defer_reason: DeferReason | None = None


def trace(rows: Rows, flow: Flow) -> Trace:
    """What the programs do with a call of a socket on this node, or with a packet from elsewhere.

    Their backends do not say whether they are local.
    """
    if flow.protocol not in (Protocol.TCP, Protocol.UDP):
        return Trace(PASS, Reason.OTHER_PROTOCOL)
    found = _find_frontend(rows, flow)
    if isinstance(found, Reason):
        return Trace(PASS, found)
    is_packet = flow.origin is Origin.OUTSIDE
    if found.frontend.flags & (FrontendFlag.DEFER_PACKETS if is_packet else FrontendFlag.DEFER_SOCKETS):
        return Trace(PASS, Reason.DEFERRED, DeferReason(found.frontend.defer_reason))
    if not found.is_open:
        return _closed_node_port(rows, found.frontend)
    return _trace_packet(rows, flow, found.frontend) if is_packet else _trace_call(rows, flow, found.frontend)


def _trace_call(rows: Rows, flow: Flow, frontend: FrontendValue) -> Trace:
    answer = _select(rows, frontend, View(frontend.internal_view), frontend.internal_verdict)
    if answer.verdict == REJECT and _is_on_its_way_out(rows, frontend, flow):
        return Trace(PASS, Reason.REJECT_PASSED)
    return answer


def _trace_packet(rows: Rows, flow: Flow, frontend: FrontendValue) -> Trace:
    if frontend.flags & FrontendFlag.SOURCE_RANGES and not _is_in_range(rows, frontend.service_id, flow.source):
        return Trace(DROP, Reason.SOURCE_RANGE)
    is_pod = _is_in_range(rows, POD_RANGES, flow.source)
    if is_pod:
        answer = _select(rows, frontend, View(frontend.internal_view), frontend.internal_verdict)
    else:
        answer = _select(rows, frontend, View(frontend.external_view), frontend.external_verdict)
    if answer.verdict.action is not Action.FORWARD:
        # A drop is one here, not a call that is let go of.
        return answer._replace(reason=Reason.DROPPED) if answer.verdict == DROP else answer
    is_masqueraded = frontend.external_view == View.CLUSTER
    if frontend.kind == Kind.CLUSTER_IP:
        is_masqueraded = not is_pod and _detects_pods(rows, family_of(flow.destination))
    # What arrives for the node itself does not cross nat POSTROUTING.
    delivered = frozenset(each.address for each in answer.verdict.backends if _local_address(rows, each.address))
    return answer._replace(verdict=replace(answer.verdict, masquerade=is_masqueraded, delivered=delivered))


def _is_in_range(rows: Rows, service_id: int, source: Address) -> bool:
    address = int.from_bytes(packed(source), "big")
    return any(
        key.service_id == service_id
        and address >> (bits := SERVICE_BITS + 128 - key.prefix_length) == int.from_bytes(key.address, "big") >> bits
        for key in rows.source_ranges
    )


def _detects_pods(rows: Rows, family: Family) -> bool:
    flag = ConfigFlag.DETECTS_PODS4 if family is Family.IPV4 else ConfigFlag.DETECTS_PODS6
    return any(config.flags & flag for config in rows.config.values())


class _Found(NamedTuple):
    """`is_open`: False for a node port on an address where node ports are not open."""

    frontend: FrontendValue
    is_open: bool = True


def _find_frontend(rows: Rows, flow: Flow) -> _Found | Reason:
    key = FrontendKey(packed(flow.destination), flow.port, flow.protocol.number)
    frontend, local = _read_frontend(rows, key), _local_address(rows, flow.destination)
    if frontend is not None:
        is_hidden = frontend.kind == Kind.CLUSTER_IP and local is not None
        return Reason.LOCAL_ADDRESS if is_hidden else _Found(frontend)
    if local is None or (local.flags & LocalFlag.LOOPBACK and flow.origin is not Origin.HOST):
        return Reason.NOT_A_FRONTEND
    node_port = _read_frontend(rows, key._replace(address=NODE_PORT_ADDRESS[family_of(flow.destination)]))
    if node_port is None:
        return Reason.NOT_A_FRONTEND
    return _Found(node_port, bool(local.flags & LocalFlag.NODE_PORT))


def _closed_node_port(rows: Rows, frontend: FrontendValue) -> Trace:
    """Refused without backends, on every address of the node; else left alone."""
    answer = _select(rows, frontend, View(frontend.external_view), frontend.external_verdict)
    return Trace(PASS, Reason.NOT_A_FRONTEND) if answer.verdict.action is Action.FORWARD else answer


def _is_on_its_way_out(rows: Rows, frontend: FrontendValue, flow: Flow) -> bool:
    """An external address without endpoints is refused to packets that arrive, not to the node's own that leave it."""
    is_local = _local_address(rows, flow.destination) is not None
    return frontend.kind != Kind.CLUSTER_IP and flow.origin is Origin.HOST and not is_local


def _read_frontend(rows: Rows, key: FrontendKey) -> FrontendValue | None:
    frontend = rows.frontends.get(key)
    return frontend if frontend is not None and frontend[:3] == key else None


def _local_address(rows: Rows, address: Address) -> LocalAddrValue | None:
    # The map holds one address for all of 127.0.0.0/8.
    looked_up = Address("127.0.0.1") if address.startswith("127.") else address
    return rows.local_addr.get(LocalAddrKey(packed(looked_up)))


def _select(rows: Rows, frontend: FrontendValue, view: View, verdict: int) -> Trace:
    service = rows.services.get(ServiceKey(frontend.service_id))
    if service is None or service.id != frontend.service_id:
        return Trace(PASS, Reason.NO_SERVICE)
    count = service.n_local if view is View.LOCAL else service.n_cluster
    if not count:
        if verdict == EmptyVerdict.DROP:
            return Trace(DROP, Reason.DROP_PASSED)
        return Trace(REJECT, Reason.REJECTED)
    backends = [_read_slot(rows, service, view, frontend.protocol, position) for position in range(count)]
    chosen = frozenset(backend for backend in backends if backend is not None)
    # One call in `count` would find nothing: as good as none for whoever tests.
    return Trace(PASS, Reason.NO_BACKEND) if None in backends else Trace(Verdict(Action.FORWARD, chosen), Reason.CHOSEN)


def _read_slot(rows: Rows, service: ServiceValue, view: View, protocol: int, position: int) -> Backend | None:
    slot = rows.slots.get(SlotKey(service.id, service.generation, view, position))
    if slot is None or slot[:2] != (service.id, service.generation):
        return None
    backend = backend_row(slot.backend, slot.backend_id)
    return Backend(unpacked(backend.address), backend.port) if backend.protocol == protocol else None
