"""Lets a service port into the maps: room for all of its rows, ids, and a generation. Called by `installed`.

Whole or not at all: what does not fit is refused with the reason, before anything is given or written.
"""

from collections.abc import Collection, Mapping

import msgspec

from kbpf.datapath.ebpf.defer import Deferrals
from kbpf.datapath.ebpf.encode import Encoded, FrontendRows, backend_addresses, frontend_rows, source_ranges
from kbpf.datapath.ebpf.ids import Ids
from kbpf.datapath.ebpf.layout import BACKENDS, FRONTENDS, MEMBERSHIP, SERVICES, SLOTS, SOURCE_RANGES
from kbpf.datapath.ebpf.room import Room
from kbpf.model.table import Frontend, ResolvedPort

VIEW_LIMIT = 2**16 - 1
"""The counts of a service row and the position of a slot are 16-bit numbers."""

Frontends = tuple[Frontend, ...]
Lists = tuple[tuple[int | None, ...], ...]
"""Backend ids: the cluster list, the local list, and the kept ones. None: it has no id yet."""


class Refusal(msgspec.Struct, frozen=True):
    reason: str


class Admission(msgspec.Struct, frozen=True):
    """`before` is always what the maps hold of the service port: it keeps its id, and its generation with its lists."""

    ids: Ids
    room: Room
    generations: Mapping[int, int]
    """By service id, the newest generation that any row names, where that is not the generation in force."""

    def serve(
        self, port: ResolvedPort, frontends: Frontends, deferrals: Deferrals, before: Encoded
    ) -> Encoded | Refusal:
        crowd = max(len(port.cluster), len(port.local))
        if crowd > VIEW_LIMIT:
            return Refusal(f"{crowd} backends, more than {VIEW_LIMIT}")
        addresses = [backend_addresses(port, each) for each in (port.cluster, port.local, port.kept)]
        find = self.ids.find
        found = tuple([tuple(map(find, view)) for view in addresses])
        new = {address for view in addresses for address in view if find(address) is None}
        lists = found[:2]
        service_id = before.service_id or self.ids.next_service
        rows = frontend_rows(port, frontends, deferrals, service_id)
        if before.service_id and lists != before.lists and _changes_views(before, rows):
            before, service_id = Encoded(before.frontends), self.ids.next_service
            rows = frontend_rows(port, frontends, deferrals, service_id)
        ranges = source_ranges(port, rows, service_id)
        need = _need(rows, found, before) | {
            BACKENDS.name: len(new),
            SOURCE_RANGES.name: _missing(ranges, before.source_ranges),
        }
        lacking = self.room.take(need)
        if lacking is not None:
            return Refusal(lacking)
        if not before.service_id:
            self.ids.new_service()
        cluster, local, kept = (tuple(map(self.ids.backend, view)) for view in addresses)
        generation = self._generation(service_id, (cluster, local), before)
        return Encoded(
            rows,
            service_id,
            generation,
            cluster,
            local,
            port.affinity_timeout_s,
            ranges,
            str(port.name),
            tuple(sorted(kept)),
        )

    def defer(self, port: ResolvedPort, frontends: Frontends, deferrals: Deferrals, before: Encoded) -> Encoded:
        """Nothing but "leave alone"; without room even for that nothing, and the programs find no frontend there."""
        rows = frontend_rows(port, frontends, deferrals, service_id=0)
        lacking = self.room.take({FRONTENDS.name: _new_frontends(rows, before)})
        return Encoded(rows if lacking is None else ())

    def _generation(self, service_id: int, lists: Lists, before: Encoded) -> int:
        if before.generation and lists == before.lists:
            return before.generation
        return self.generations.get(service_id, before.generation) + 1


def _changes_views(before: Encoded, rows: FrontendRows) -> bool:
    """Do frontends go to the other list?

    When that list changes too, no single row can switch both, and a call in between would get a list that was never
    meant for it. So the port gets a service of its own beside the old one, complete before its frontends lead there.
    By kind, not by key: a frontend that the port gives up must not change lists while it is still there either.
    """
    views = {value.kind: value.views for _, value in before.frontends if value.service_id}
    return any(views.get(value.kind, value.views) != value.views for _, value in rows)


def _need(rows: FrontendRows, found: Lists, before: Encoded) -> dict[str, int]:
    """New entries by map, beside those of the old generation."""
    joining, lists = 0, found[:2]
    for view, old in zip(found, (*before.lists, before.kept), strict=True):
        joining += _missing(view, old)
    return {
        FRONTENDS.name: _new_frontends(rows, before),
        SERVICES.name: 0 if before.service_id else 1,
        SLOTS.name: 0 if lists == before.lists else sum(map(len, lists)),
        MEMBERSHIP.name: joining,
    }


def _new_frontends(rows: FrontendRows, before: Encoded) -> int:
    return _missing([key for key, _ in rows], [key for key, _ in before.frontends])


def _missing(wanted: Collection[object], there: Collection[object]) -> int:
    """How many of `wanted` are not there."""
    if not there:
        return len(wanted)
    known = frozenset(there)
    return sum(each not in known for each in wanted)
