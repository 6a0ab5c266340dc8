"""Everything that the cluster has told us, and what of it is not in the kernel yet.

The proxier feeds it events and asks for the change set of a sync; `policy.resolve` reads the live state through it. One
thread owns it. Nothing here is lost by a failed sync, see `changes`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kbpf.model.endpoint import Endpoint, EndpointsKey
from kbpf.model.events import ServiceChanged, SliceChanged
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.problem import Problem, shown
from kbpf.model.service_port import ServicePort
from kbpf.tracking.changes import ChangeTracker, Checkout
from kbpf.tracking.endpoints import merge_slices
from kbpf.tracking.service_ports import service_ports
from kbpf.tracking.slice_record import SliceRecord, slice_record
from kbpf.tracking.trigger_times import TriggerTime, TriggerTimes

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""RFC 1123 subdomain, the widest rule that the API has for these names. They end up in rule files."""


class ChangeSet(msgspec.Struct, frozen=True):
    services: Checkout[ServiceName, tuple[ServicePort, ...]]
    slices: Checkout[SliceName, SliceRecord]
    dirty: frozenset[ServiceName]
    """Every Service whose resolution may differ from what was last synced."""
    triggers: dict[ServiceName, tuple[TriggerTime, ...]]


class ChangeCounts(NamedTuple):
    """Changes of objects so far, and objects that differ from what was last synced."""

    services: int = 0
    slices: int = 0
    services_pending: int = 0
    slices_pending: int = 0


class Trackers:
    def __init__(self, node_name: str, started_at: float = 0.0) -> None:
        """`started_at`: in seconds since the epoch; see `TriggerTimes`."""
        self._node_name = node_name
        self._services: ChangeTracker[ServiceName, tuple[ServicePort, ...]] = ChangeTracker()
        self._slices: ChangeTracker[SliceName, SliceRecord] = ChangeTracker()
        self._slices_of: dict[ServiceName, tuple[SliceName, ...]] = {}
        self._problems: dict[tuple[type, ServiceName | SliceName], tuple[Problem, ...]] = {}
        self._triggers = TriggerTimes(started_at)
        self._service_changes = self._slice_changes = 0
        self._unconfirmed: frozenset[ServiceName] = frozenset()
        """Dirty in a checkout that was not committed: the table, perhaps half the kernel, holds what it showed."""

    # -- events in ---------------------------------------------------------------------------------------------------

    def update(self, event: ServiceChanged | SliceChanged) -> tuple[bool, tuple[Problem, ...]]:
        """Take one event. Says whether its object now differs from what was last synced, and which problems are new."""
        if isinstance(event, ServiceChanged):
            return self._update_service(event)
        return self._update_slice(event)

    def _update_service(self, event: ServiceChanged) -> tuple[bool, tuple[Problem, ...]]:
        ports: tuple[ServicePort, ...] = ()
        problems = _name_problems("Service", event.name)
        if event.service is not None and not problems:
            ports, problems = service_ports(event.name, event.service)
        self._service_changes += 1
        changed = self._services.update(event.name, ports or None)
        return changed, self._new_problems((ServiceName, event.name), problems if event.service is not None else ())

    def _update_slice(self, event: SliceChanged) -> tuple[bool, tuple[Problem, ...]]:
        record: SliceRecord | None = None
        problems = _name_problems("EndpointSlice", event.name)
        if event.slice is not None and not problems:
            record, problems = slice_record(event.name, event.slice, self._node_name)
        before = self._slices.current.get(event.name)
        self._index(event.name, before, record)
        changed = self._slices.update(event.name, record)
        self._slice_changes += changed
        if changed and record is not None and event.slice is not None:
            self._triggers.note(record.service, record.family, event.slice)
        elif before is not None and record is None:
            self._triggers.forget(before.service)
        return changed, self._new_problems((SliceName, event.name), problems if event.slice is not None else ())

    def _index(self, name: SliceName, before: SliceRecord | None, after: SliceRecord | None) -> None:
        if before is not None and (after is None or after.service != before.service):
            left = tuple(other for other in self._slices_of.pop(before.service) if other != name)
            if left:
                self._slices_of[before.service] = left
        if after is not None and (before is None or after.service != before.service):
            # Tuples: nearly all Services have one slice, and a set of one takes four times as much.
            self._slices_of[after.service] = (*self._slices_of.get(after.service, ()), name)

    def _new_problems(
        self, key: tuple[type, ServiceName | SliceName], problems: tuple[Problem, ...]
    ) -> tuple[Problem, ...]:
        """Problems that this object did not have before: a resync of a bad object must not flood the log."""
        known = self._problems.get(key, ())
        if problems:
            self._problems[key] = problems
        else:
            self._problems.pop(key, None)
        return tuple(problem for problem in problems if problem not in known)

    # -- one sync ----------------------------------------------------------------------------------------------------

    def checkout(self) -> ChangeSet:
        services, slices = self._services.checkout(), self._slices.checkout()
        dirty = set(services.shown) | self._unconfirmed
        for records in (slices.shown, slices.synced):
            dirty.update(record.service for record in records.values() if record is not None)
        self._unconfirmed = frozenset(dirty)
        return ChangeSet(services, slices, self._unconfirmed, self._triggers.checkout())

    def commit(self, changes: ChangeSet) -> None:
        self._services.commit(changes.services)
        self._slices.commit(changes.slices)
        self._triggers.commit(changes.triggers)
        self._unconfirmed -= changes.dirty

    @property
    def counts(self) -> ChangeCounts:
        pending = len(self._services.pending), len(self._slices.pending)
        return ChangeCounts(self._service_changes, self._slice_changes, *pending)

    @property
    def has_pending(self) -> bool:
        return bool(self._services.pending or self._slices.pending or self._unconfirmed)

    # -- live state, read by resolve ---------------------------------------------------------------------------------

    @property
    def service_names(self) -> Iterator[ServiceName]:
        return iter(self._services.current)

    def service_ports(self, service: ServiceName) -> tuple[ServicePort, ...]:
        return self._services.current.get(service, ())

    def endpoints(self, service: ServiceName) -> dict[EndpointsKey, tuple[Endpoint, ...]]:
        names = self._slices_of.get(service, ())
        return merge_slices((name, self._slices.current[name]) for name in names)

    @property
    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong with objects right now."""
        for problems in self._problems.values():
            yield from problems


def _name_problems(kind: str, name: ServiceName | SliceName) -> tuple[Problem, ...]:
    for field, text in (("metadata.namespace", name.namespace), ("metadata.name", name.name)):
        if not OBJECT_NAME.fullmatch(text):
            return (Problem(kind, field, shown(text), "is not a Kubernetes name, object ignored"),)
    return ()
