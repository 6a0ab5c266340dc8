"""The difference between what the maps hold and what they must hold, as an ordered value. Pure.

The order is what keeps every reader whole: a program that looks up a frontend between any two writes finds the old list
of backends or the new one. Backends, membership and slots of a new generation come first, where nobody looks yet; the
service row switches to them in one word; frontends come last and leave first; what nobody can reach any more is swept.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from kbpf.datapath.ebpf import text
from kbpf.datapath.ebpf.encode import OPEN_END
from kbpf.datapath.ebpf.layout import (
    AFFINITY,
    BACKENDS,
    CONFIG,
    FRONTENDS,
    LOCAL_ADDR,
    MEMBERSHIP,
    NAMES,
    SERVICES,
    SLOTS,
    SOURCE_RANGES,
    WANTED,
)
from kbpf.datapath.ebpf.rows import AnyRows, AnySpec, Rows
from kbpf.datapath.ebpf.shapes import MembershipKey, MembershipValue, ServiceKey


class Put(msgspec.Struct, frozen=True):
    spec: AnySpec
    rows: AnyRows

    def __len__(self) -> int:
        return len(self.rows)

    def lines(self) -> Iterator[str]:
        return (f"put {text.row_line(self.spec, key, self.rows[key])}" for key in sorted(self.rows))


class Delete(msgspec.Struct, frozen=True):
    spec: AnySpec
    keys: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def lines(self) -> Iterator[str]:
        return (f"delete {text.key_line(self.spec, key)}" for key in sorted(self.keys))


Step = Put | Delete


class Plan(msgspec.Struct, frozen=True):
    """Steps in their order; within a step no order matters."""

    steps: tuple[Step, ...] = ()

    @property
    def writes(self) -> int:
        return sum(map(len, self.steps))

    def __str__(self) -> str:
        return "".join(f"{line}\n" for step in self.steps for line in step.lines())


def plan(known: Rows, wanted: Rows) -> Plan:
    """What makes `known` into `wanted`.

    Both are about the same part of the maps: all of it, or the service ports that changed.
    """
    steps: list[Step] = [
        # Ids to come before any row with such an id; local addresses before the frontends they hide.
        Put(CONFIG, _differing(known.config, wanted.config)),
        Put(LOCAL_ADDR, _differing(known.local_addr, wanted.local_addr)),
        Put(BACKENDS, _differing(known.backends, wanted.backends)),
        Put(MEMBERSHIP, {**_leaving(known, wanted), **_joining(known, wanted)}),
        Put(SLOTS, _differing(known.slots, wanted.slots)),
        Put(SOURCE_RANGES, _differing(known.source_ranges, wanted.source_ranges)),
        Put(NAMES, _differing(known.names, wanted.names)),
        Put(SERVICES, _differing(known.services, wanted.services)),
        Put(AFFINITY, _differing(known.affinity, wanted.affinity)),
        Put(FRONTENDS, _differing(known.frontends, wanted.frontends)),
    ]
    steps += [
        Delete(spec, tuple(known.of(spec).keys() - wanted.of(spec).keys()))
        for spec in (
            FRONTENDS,
            SERVICES,
            SLOTS,
            SOURCE_RANGES,
            MEMBERSHIP,
            BACKENDS,
            LOCAL_ADDR,
            AFFINITY,
            WANTED,
            NAMES,
        )
    ]
    return Plan(tuple(step for step in steps if len(step)))


def _differing(known: AnyRows, wanted: AnyRows) -> AnyRows:
    return {key: value for key, value in wanted.items() if known.get(key) != value}


def _joining(known: Rows, wanted: Rows) -> dict[MembershipKey, MembershipValue]:
    """Members that the maps do not know as such. Who stays keeps its row, and so is a member in both generations."""
    rows = {}
    for key, member in wanted.membership.items():
        row = known.membership.get(key)
        if row is None or row[2:] != member[2:]:
            rows[key] = member
        elif row.first_generation > member.first_generation or row.last_generation != OPEN_END:
            rows[key] = member._replace(first_generation=min(row.first_generation, member.first_generation))
    return rows


def _leaving(known: Rows, wanted: Rows) -> dict[MembershipKey, MembershipValue]:
    """Who is not in the new generation ends with the old one: at the switch, not when its row is swept."""
    rows = {}
    for key in known.membership.keys() - wanted.membership.keys():
        row, service = known.membership[key], ServiceKey(key.service_id)
        before, after = known.services.get(service), wanted.services.get(service)
        if before and after and before.generation < after.generation and row.last_generation > before.generation:
            rows[key] = row._replace(last_generation=before.generation)
    return rows
