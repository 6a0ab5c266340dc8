"""A close look at the maps, in steps of a few milliseconds: where they do not hold what was written.

Entries that are missing or altered are found by asking for each, a few services at a time; surplus ones by counting.
`backend` makes the steps, and syncs may come between two of them: each step looks for what the maps are known to hold
by then. It repairs nothing; a full sync does.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from kbpf.datapath.ebpf.layout import AFFINITY, WANTED
from kbpf.datapath.ebpf.plan import plan
from kbpf.datapath.ebpf.rows import SYNCED_MAPS, AnyRows, AnySpec, Rows
from kbpf.datapath.ebpf.store import MapSet, OpenMap, open_map
from kbpf.model.names import ServiceName

AT_ONCE = 20
"""Services in a step: some 300 entries where each has five endpoints."""


COUNTED = tuple(spec for spec in SYNCED_MAPS if spec not in (AFFINITY, WANTED))
"""The programs add to the others themselves."""


def parts(services: Iterable[ServiceName]) -> Iterator[tuple[ServiceName, ...]]:
    remaining = iter(services)
    while part := tuple(islice(remaining, AT_ONCE)):
        yield part


def altered(maps: MapSet, written: Rows) -> frozenset[str]:
    """The maps in which some of these rows are missing or differ."""
    found = Rows(**{spec.name: _found(open_map(maps, spec), rows) for spec, rows in written if rows})
    return frozenset(step.spec.name for step in plan(found, written).steps)


def miscounted(maps: MapSet, spec: AnySpec, written: int) -> frozenset[str]:
    """The map, if it holds more or fewer entries than were written."""
    return frozenset() if open_map(maps, spec).size() == written else frozenset({spec.name})


def _found(held: OpenMap, rows: AnyRows) -> AnyRows:
    asked = ((key, held.lookup(key)) for key in rows)
    return {key: row for key, row in asked if row is not None}
