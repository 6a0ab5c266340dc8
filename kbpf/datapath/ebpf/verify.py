"""The rows of the maps against those that should be there: a line for each difference. Pure; called for `kbpf verify`.

Ids and generations are whatever the maps say; that frontends, services, lists and members agree about them, and lead to
the endpoints of the table, is what is looked at. Nothing here is how a sync decides, so that it can find a sync wrong.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kbpf.datapath.ebpf import text
from kbpf.datapath.ebpf.adopt import CONFIG_KEY, NO_CONFIG
from kbpf.datapath.ebpf.defer import SERVED, Deferrals, DeferSettings, PortKey, deferrals
from kbpf.datapath.ebpf.encode import frontend_key, frontend_rows, source_ranges
from kbpf.datapath.ebpf.ids import backend_row
from kbpf.datapath.ebpf.layout import BACKENDS, FRONTENDS, LOCAL_ADDR, SERVICES, SLOTS, SOURCE_RANGES
from kbpf.datapath.ebpf.node import POD_RANGES
from kbpf.datapath.ebpf.reading import backends
from kbpf.datapath.ebpf.rows import AnyRows, AnySpec, Rows
from kbpf.datapath.ebpf.shapes import (
    FIRST_RESERVED_ID,
    BackendKey,
    DeferReason,
    FrontendKey,
    MembershipKey,
    NameKey,
    NameValue,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SourceRangeKey,
    View,
)
from kbpf.model.address import Address, host_port, unpacked
from kbpf.model.table import Backend, Frontend, ResolvedPort, ServiceTable

_Key = TypeVar("_Key", MembershipKey, SourceRangeKey)


def spilled(rows: Rows, table: ServiceTable) -> frozenset[PortKey]:
    """Service ports that the maps say do not fit: room is the writer's to judge, so that is no difference."""
    return frozenset(
        PortKey.of(port)
        for port in table
        for frontend in table.owned_frontends(port)
        if (row := rows.frontends.get(frontend_key(port, frontend))) and row.defer_reason == DeferReason.SPILLED
    )


def differences(rows: Rows, table: ServiceTable, settings: DeferSettings, node: Rows) -> Iterator[str]:
    """What the rows hold otherwise than `table` and `node`, the rows of no service, want it."""
    led_to = set[int]()
    known = set[FrontendKey]()
    kept = _by_service(key for key in rows.membership if key.view == View.KEPT)
    ranges = _by_service(rows.source_ranges)
    for port in table:
        frontends = table.owned_frontends(port)
        found = deferrals(port, frontends, settings)
        check = PortCheck(rows, port, frontends, found, kept, ranges)
        known.update(check.keys)
        led_to.add(check.service_id)
        yield from check.differences()
    yield from _strangers(rows, known, led_to)
    yield from _node_differences(rows, node)


class PortCheck:
    """One service port: what its frontends lead to."""

    def __init__(
        self,
        rows: Rows,
        port: ResolvedPort,
        frontends: tuple[Frontend, ...],
        found: Deferrals,
        kept: Mapping[int, list[MembershipKey]],
        ranges: Mapping[int, list[SourceRangeKey]],
    ) -> None:
        """`kept` and `ranges` by service id: all rows are looked through once, and not for each port."""
        self.kept, self.ranges = kept, ranges
        self.rows, self.port, self.frontends, self.found = rows, port, frontends, found
        self.keys = tuple(dict.fromkeys(frontend_key(port, frontend) for frontend in frontends))
        leading = Counter(row.service_id for key in self.keys if (row := rows.frontends.get(key)) and row.service_id)
        self.service_id = leading.most_common(1)[0][0] if leading else 0
        self.is_served = not all(found.get(frontend, SERVED).is_complete for frontend in frontends)
        self.name = f"{port.name} ({port.family.value})"

    def differences(self) -> Iterator[str]:
        for key, wanted in frontend_rows(self.port, self.frontends, self.found, self.service_id):
            row = self.rows.frontends.get(key)
            if row is None:
                yield f"{self.name}: lacks {text.key_line(FRONTENDS, key)}"
            elif row != wanted:
                yield f"{self.name}: {_fields(FRONTENDS, key, row, wanted)}"
        if self.is_served and self.service_id:
            yield from self._service_differences()

    def _service_differences(self) -> Iterator[str]:
        service = self.rows.services.get(ServiceKey(self.service_id))
        if service is None:
            yield f"{self.name}: lacks {text.key_line(SERVICES, ServiceKey(self.service_id))}"
            return
        lists = ((View.CLUSTER, self.port.cluster), (View.LOCAL, self.port.local))
        counts = (len(self.port.cluster), len(self.port.local))
        wanted = ServiceValue(service.generation, *counts, self.service_id, self.port.affinity_timeout_s)
        if service != wanted:
            yield f"{self.name}: {_fields(SERVICES, ServiceKey(self.service_id), service, wanted)}"
        for view, endpoints in lists:
            yield from self._list_differences(service, view, endpoints)
        yield from self._kept_differences()
        name = self.rows.names.get(NameKey(self.service_id))
        if name != NameValue.of(str(self.port.name)):
            yield f"{self.name}: is named {str(name) if name else 'nothing'} in names"
        wanted_ranges = source_ranges(
            self.port, frontend_rows(self.port, self.frontends, self.found, self.service_id), self.service_id
        )
        there = set(self.ranges.get(self.service_id, ()))
        for key in sorted(there ^ set(wanted_ranges)):
            yield f"{self.name}: {'has beyond' if key in there else 'lacks'} source range /{key.prefix_length - 32}"

    def _kept_differences(self) -> Iterator[str]:
        """Members without slots."""
        members = self.kept.get(self.service_id, ())
        rows = (self.rows.backends.get(BackendKey(key.backend_id)) for key in members)
        there = {(unpacked(row.address), row.port) for row in rows if row is not None}
        wanted = {(each.address, each.port) for each in self.port.kept}
        yield from (f"{self.name}: lacks the UDP flows of {host_port(*each)}" for each in sorted(wanted - there))
        yield from (f"{self.name}: keeps the UDP flows of {host_port(*each)}" for each in sorted(there - wanted))

    def _list_differences(self, service: ServiceValue, view: View, endpoints: tuple[Backend, ...]) -> Iterator[str]:
        head = f"{self.name}: {view.name.lower()} list"
        there = Counter[tuple[Address, int]]()
        for position, backend in enumerate(backends(self.rows, service, view)):
            if backend is None:
                key = SlotKey(service.id, service.generation, view, position)
                yield f"{head}: nothing behind {text.key_line(SLOTS, key)}"
            else:
                there[backend.address, backend.port] += 1
        wanted = Counter((each.address, each.port) for each in endpoints)
        yield from (f"{head}: lacks {host_port(*each)}" for each in sorted((wanted - there).elements()))
        yield from (f"{head}: has beyond {host_port(*each)}" for each in sorted((there - wanted).elements()))
        yield from self._member_differences(head, service, view)

    def _member_differences(self, head: str, service: ServiceValue, view: View) -> Iterator[str]:
        count = service.n_local if view is View.LOCAL else service.n_cluster
        for position in range(count):
            slot = self.rows.slots.get(SlotKey(service.id, service.generation, view, position))
            if slot is None:
                continue
            member = self.rows.membership.get(MembershipKey(service.id, slot.backend_id, view))
            if member is None or not member.first_generation <= service.generation <= member.last_generation:
                yield f"{head}: backend {slot.backend_id} is in a slot and no member"
            key, wanted = BackendKey(slot.backend_id), backend_row(slot.backend, slot.backend_id)
            row = self.rows.backends.get(key)
            if row is None:
                yield f"{head}: lacks {text.key_line(BACKENDS, key)}"
            elif row != wanted:
                yield f"{head}: {_fields(BACKENDS, key, row, wanted)}"


def _by_service(keys: Iterable[_Key]) -> dict[int, list[_Key]]:
    found: dict[int, list[_Key]] = defaultdict(list)
    for key in keys:
        found[key.service_id].append(key)
    return found


def _strangers(rows: Rows, known: set[FrontendKey], led_to: set[int]) -> Iterator[str]:
    """Rows of Services that are not there."""
    for key, row in sorted(rows.frontends.items()):
        if key not in known and row.service_id < FIRST_RESERVED_ID:
            yield f"of no Service: {text.row_line(FRONTENDS, key, row)}"
    for service in sorted(rows.services):
        if service.id not in led_to and service.id < FIRST_RESERVED_ID:
            yield f"of no Service: {text.row_line(SERVICES, service, rows.services[service])}"


def _node_differences(rows: Rows, node: Rows) -> Iterator[str]:
    yield from _row_differences(LOCAL_ADDR, rows.local_addr, node.local_addr)
    there, wanted = rows.config.get(CONFIG_KEY, NO_CONFIG), node.config[CONFIG_KEY]
    wanted = wanted._replace(next_service_id=there.next_service_id, next_backend_id=there.next_backend_id)
    if there != wanted:
        changed = (name for name in there._fields if getattr(there, name) != getattr(wanted, name))
        yield f"node: config: differs in {', '.join(changed)}"
    pod_ranges = {key for key in rows.source_ranges if key.service_id == POD_RANGES}
    for key in sorted(pod_ranges ^ node.source_ranges.keys()):
        words = "has beyond" if key in pod_ranges else "lacks"
        yield f"node: {words} {text.key_line(SOURCE_RANGES, key)}"


def _row_differences(spec: AnySpec, there: AnyRows, wanted: AnyRows) -> Iterator[str]:
    for key in sorted(there.keys() | wanted.keys()):
        if key not in there:
            yield f"node: lacks {text.row_line(spec, key, wanted[key])}"
        elif key not in wanted:
            yield f"node: has beyond {text.row_line(spec, key, there[key])}"
        elif there[key] != wanted[key]:
            yield f"node: {_fields(spec, key, there[key], wanted[key])}"


def _fields(spec: AnySpec, key: Any, there: Any, wanted: Any) -> str:
    """`frontends address=… : kind=NODE_PORT instead of CLUSTER_IP`."""
    found, right = text.field_words(spec, there), text.field_words(spec, wanted)
    words = ", ".join(f"{name}={found[name]} instead of {right[name]}" for name in found if found[name] != right[name])
    return f"{text.key_line(spec, key)}: {words}"
