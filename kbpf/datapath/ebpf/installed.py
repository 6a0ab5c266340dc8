"""What the maps hold for each service port, remembered, and what the next ServiceTable changes about it.

The state of the datapath, without I/O. The backend shows it the services to look at; `plan` turns what it answers into
writes. Its memory is true again only when those are done: after a failure the backend drops the whole object, and
`adopt` makes a new one from what the maps hold.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kbpf.datapath.ebpf import layout
from kbpf.datapath.ebpf.admit import Admission
from kbpf.datapath.ebpf.defer import SERVED, Deferral, DeferSettings, PortKey, deferrals
from kbpf.datapath.ebpf.encode import AddressOf, Encoded
from kbpf.datapath.ebpf.ids import BackendAddress, Ids, backend_row
from kbpf.datapath.ebpf.room import Room
from kbpf.datapath.ebpf.rows import AnySpec, Rows
from kbpf.datapath.ebpf.shapes import BackendKey, BackendValue, DeferReason, FrontendFlag, FrontendValue, Kind
from kbpf.datapath.interface import MapFill
from kbpf.model.names import ServiceName
from kbpf.model.table import ResolvedPort, ServiceTable

_NOTHING = Encoded()
FILLED = frozenset(
    spec.name for spec in (layout.FRONTENDS, layout.SERVICES, layout.SLOTS, layout.MEMBERSHIP, layout.BACKENDS)
)
"""Maps that hold our rows and no others."""


@dataclass(slots=True)
class Change:
    """The service ports that change, as they are and as they must be, and the backends that come and go."""

    services: frozenset[ServiceName] = frozenset()
    """All that were decided anew."""
    before: list[Encoded] = field(default_factory=list)
    after: list[Encoded] = field(default_factory=list)
    new_backends: range = range(0)
    """Their ids."""
    old_backends: dict[int, BackendAddress] = field(default_factory=dict)

    @property
    def gone_services(self) -> frozenset[int]:
        return frozenset(each.service_id for each in self.before) - {each.service_id for each in self.after}

    @property
    def moved_services(self) -> dict[int, int]:
        """Service ports with session affinity that have another service id now, by the old one."""
        pairs = zip(self.before, self.after, strict=True)
        both = ((old.service_id, new.service_id) for old, new in pairs if new.affinity_timeout_s)
        return {old: new for old, new in both if old not in (0, new)}

    def known(self, ids: Ids) -> Rows:
        old = self.old_backends
        rows = {BackendKey(number): backend_row(address, number) for number, address in old.items()}
        return _rows(self.before, rows, lambda number: old.get(number) or ids.address(number))

    def wanted(self, ids: Ids) -> Rows:
        return _rows(self.after, ids.rows(self.new_backends), ids.address)


class Installed:
    def __init__(self, ids: Ids, specs: Sequence[AnySpec], settings: DeferSettings) -> None:
        self.ids = ids
        self.generations: dict[int, int] = {}
        """By service id, the newest generation that any row names, where that is not the generation in force."""
        self.used: Counter[str] = Counter()
        """Entries by map."""
        self.spilled: dict[PortKey, str] = {}
        """Service ports that do not fit the maps, and why."""
        self._deferred: Counter[int] = Counter()
        self._external = 0
        self._ports: dict[ServiceName, dict[PortKey, Encoded]] = {}
        self._specs, self._settings = specs, settings
        self._room = Room(specs, {})

    def adopt(self, port: ResolvedPort, encoded: Encoded) -> None:
        """Remember what the maps were found to hold of a service port."""
        self._ports.setdefault(port.name.service, {})[PortKey.of(port)] = encoded
        self._count(_NOTHING, encoded)

    def change(self, table: ServiceTable, services: Iterable[ServiceName]) -> Change:
        """Remember what `table` says of `services`, and of those that did not fit if there may be room now."""
        names = frozenset((*services, *self._to_retry()))
        change, first_new = Change(names), self.ids.next_backend
        self._room = Room(self._specs, self.used)
        admission = Admission(self.ids, self._room, self.generations)
        for name in sorted(names):
            self._change_service(name, table, admission, change)
        change.new_backends = range(first_new, self.ids.next_backend)
        change.old_backends = self.ids.drop_unused()
        self.used[layout.BACKENDS.name] += len(change.new_backends) - len(change.old_backends)
        return change

    def everything(self) -> Rows:
        """All that the maps must hold; counted anew."""
        encoded = [each for ports in self._ports.values() for each in ports.values()]
        rows = _rows(encoded, self.ids.rows(self.ids.used), self.ids.address)
        self.used = Counter({spec.name: len(held) for spec, held in rows})
        self.generations = {}
        return rows

    @property
    def services(self) -> tuple[ServiceName, ...]:
        return tuple(self._ports)

    def rows_of(self, services: Iterable[ServiceName]) -> Rows:
        """All that the maps hold of them."""
        encoded = [each for name in services for each in self._ports.get(name, {}).values()]
        backends = self.ids.rows(frozenset().union(*(each.backends for each in encoded)))
        return _rows(encoded, backends, self.ids.address)

    @property
    def lacking(self) -> dict[str, int]:
        """The maps that had no room for all of the last change, and how many entries would have been enough."""
        return self._room.lacking

    @property
    def settings(self) -> DeferSettings:
        """With what does not fit: that decides about the residue."""
        return replace(self._settings, spilled=frozenset(self.spilled))

    @property
    def serves_external(self) -> bool:
        """Is there a frontend for packets from elsewhere that the programs treat?"""
        return self._external > 0

    @property
    def deferred(self) -> dict[str, int]:
        """Frontends left to iptables, by reason."""
        return {
            DeferReason(reason).name.lower().replace("_", "-"): count
            for reason, count in sorted(self._deferred.items())
            if reason != DeferReason.NONE and count
        }

    @property
    def defers(self) -> bool:
        """Is any frontend left to iptables?"""
        return bool(self.spilled) or any(self._deferred[reason] for reason in DeferReason if reason)

    @property
    def fill(self) -> dict[str, MapFill]:
        """How full the maps are whose rows are ours alone."""
        return {
            spec.name: MapFill(self.used[spec.name], spec.max_entries) for spec in self._specs if spec.name in FILLED
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                f"{key.name} ({key.family.value}) does not fit the maps and is left to iptables: {reason}"
                for key, reason in self.spilled.items()
            )
        )

    def _to_retry(self) -> Iterable[ServiceName]:
        """The last plan swept something after it had found no room for these."""
        return {key.name.service for key in self.spilled} if self._room.has_grown(self.used) else ()

    def _change_service(self, name: ServiceName, table: ServiceTable, admission: Admission, change: Change) -> None:
        before, after = self._ports.pop(name, {}), {}
        for port in table.ports_of(name):
            key = PortKey.of(port)
            after[key] = self._encode(key, port, table, admission, before.get(key, _NOTHING))
        for key in before.keys() | after.keys():
            old, new = before.get(key, _NOTHING), after.get(key, _NOTHING)
            if old != new:
                change.before.append(old)
                change.after.append(new)
                self._count(old, new)
        for key in before.keys() - after.keys():
            self.spilled.pop(key, None)
        if after:
            self._ports[name] = after

    def _encode(
        self, key: PortKey, port: ResolvedPort, table: ServiceTable, admission: Admission, before: Encoded
    ) -> Encoded:
        frontends = table.owned_frontends(port)
        found = deferrals(port, frontends, self._settings)
        self.spilled.pop(key, None)
        if not all(found.get(frontend, SERVED).is_complete for frontend in frontends):
            answer = admission.serve(port, frontends, found, before)
            if isinstance(answer, Encoded):
                return answer
            self.spilled[key] = answer.reason
            found = dict.fromkeys(frontends, Deferral(DeferReason.SPILLED, DeferReason.SPILLED))
        return admission.defer(port, frontends, found, before)

    def _count(self, old: Encoded, new: Encoded) -> None:
        self.ids.use(new.backends)
        self.ids.release(old.backends)
        self._add(new, 1)
        self._add(old, -1)

    def _add(self, encoded: Encoded, sign: int) -> None:
        if encoded is _NOTHING:
            return
        for name, count in encoded.sizes.items():
            self.used[name] += sign * count
        for _, value in encoded.frontends:
            self._deferred[value.defer_reason] += sign
            self._external += sign * _is_external(value)


def _is_external(value: FrontendValue) -> bool:
    return value.kind != Kind.CLUSTER_IP and not value.flags & FrontendFlag.DEFER_PACKETS


def _rows(encoded: Iterable[Encoded], backends: dict[BackendKey, BackendValue], address_of: AddressOf) -> Rows:
    rows = Rows(backends=backends)
    for each in encoded:
        each.add_to(rows, address_of)
    return rows
