"""Between rows and open maps: reads what they hold, carries out a plan. The only module that writes a service row.

Called by `backend` with the pinned maps and by tests with the fake ones; both are sets with one attribute for each map.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kbpf.datapath.ebpf.plan import Plan, Put
from kbpf.datapath.ebpf.rows import SYNCED_MAPS, AnySpec, Rows


class OpenMap(Protocol):
    """Any: each map has rows of its own; `maps` and `fake` have them typed."""

    def update(self, rows: Mapping[Any, Any]) -> None: ...

    def delete(self, keys: Iterable[Any]) -> None: ...

    def lookup(self, key: Any) -> Any | None: ...

    def entries(self) -> dict[Any, Any]: ...

    def size(self) -> int: ...


class MapSet(Protocol):
    """An OpenMap under the name of each of SYNCED_MAPS."""

    def close(self) -> None: ...


def open_map(maps: MapSet, spec: AnySpec) -> OpenMap:
    found: OpenMap = getattr(maps, spec.name)
    return found


def observe(maps: MapSet) -> Rows:
    """Everything that a sync reads or writes."""
    return Rows(**{spec.name: open_map(maps, spec).entries() for spec in SYNCED_MAPS})


def apply(plan: Plan, maps: MapSet) -> None:
    """Step by step in the plan's order, in batches. After a MapError everything before it stands, and nothing after."""
    for step in plan.steps:
        target = open_map(maps, step.spec)
        if isinstance(step, Put):
            target.update(step.rows)
        else:
            target.delete(step.keys)
