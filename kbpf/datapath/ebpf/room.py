"""How many entries each map still takes. Counted before anything is written, so that no service gets in halfway.

A new generation stands beside the old one until that is swept: a plan needs room for both. Used by `admit`.
"""

from collections.abc import Iterable, Mapping

from kbpf.datapath.ebpf import layout
from kbpf.datapath.ebpf.rows import AnySpec

COUNTED = frozenset(
    spec.name
    for spec in (
        layout.FRONTENDS,
        layout.SERVICES,
        layout.SLOTS,
        layout.MEMBERSHIP,
        layout.BACKENDS,
        layout.SOURCE_RANGES,
    )
)

RESERVED = 2
"""Entries of each map that stay free: for the self-test, one for each protocol; for the pods' range of each family."""


class Room:
    def __init__(self, specs: Iterable[AnySpec], used: Mapping[str, int]) -> None:
        self._used, self._asked = dict(used), dict.fromkeys(COUNTED, 0)
        self._specs = {spec.name: spec for spec in specs if spec.name in COUNTED}
        self._free = {name: room_of(spec) - used.get(name, 0) for name, spec in self._specs.items()}

    def take(self, need: Mapping[str, int]) -> str | None:
        """Reserve all of it; or reserve nothing and say which map has no room."""
        free, asked = self._free, self._asked
        for name, count in need.items():
            asked[name] += count
        for name, count in need.items():
            if count > 0 and count > free[name]:
                spec = self._specs[name]
                return f"no room in {name} ({spec.max_entries} entries): raise {spec.size_flag}"
        for name, count in need.items():
            free[name] -= count
        return None

    @property
    def lacking(self) -> dict[str, int]:
        """The maps that had no room for all that was asked, and how many entries would have been enough."""
        return {name: self._entries(name) for name, spec in self._specs.items() if self._entries(name) > room_of(spec)}

    def _entries(self, name: str) -> int:
        return self._used.get(name, 0) + self._asked[name]

    def has_grown(self, used: Mapping[str, int]) -> bool:
        """With `used` entries now, is there more room than was left when this plan was made?"""
        now = Room(self._specs.values(), used)
        return any(free > self._free[name] for name, free in now._free.items())


def room_of(spec: AnySpec) -> int:
    return spec.max_entries - RESERVED
