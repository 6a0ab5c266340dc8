"""Where the datapaths meet: what each of them is asked, and what it answers.

A datapath is owned by the control thread. It translates the ServiceTable and decides nothing about endpoints.
"""

from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable


class Answer(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "cannot tell"


class Feature(msgspec.Struct, frozen=True):
    """One thing that a kernel or host offers. `reason` is the evidence, empty when there is nothing to add."""

    name: str
    answer: Answer
    reason: str = ""


class Support(msgspec.Struct, frozen=True):
    """Whether a datapath can run here. `reason` names the missing feature, or why it could not be told."""

    answer: Answer
    reason: str = ""
    features: tuple[Feature, ...] = ()


class RuleCount(NamedTuple):
    held: int
    written: int


class MapFill(NamedTuple):
    used: int
    room: int


class FamilyReport(msgspec.Struct, frozen=True):
    """What one sync did for one IP family."""

    duration_s: float
    full: bool
    rules: Mapping[str, RuleCount] = msgspec.field(default_factory=dict)
    """By netfilter table, where there are rules."""
    refused_partial: bool = False
    """The kernel refused what a partial sync wrote, and took a full one."""


class SyncReport(msgspec.Struct, frozen=True):
    """What one sync did; `sentence` is the log line, the event and the assertion of tests.

    `writes` counts entries or rules written or deleted: zero when the kernel already held the wanted state.
    """

    datapath: str
    full: bool
    services: int
    """Services looked at."""
    writes: int
    duration_s: float
    deferred: dict[str, int] = msgspec.field(default_factory=dict)
    """Frontends left to iptables, by reason."""
    warnings: tuple[str, ...] = ()
    families: Mapping[Family, FamilyReport] = msgspec.field(default_factory=dict)
    """Those that this host has."""
    maps: Mapping[str, MapFill] = msgspec.field(default_factory=dict)
    """BPF maps by name, without those that the programs fill themselves."""
    fallback_reason: str = ""
    """Why another datapath carries the services than the one that was started."""

    @property
    def sentence(self) -> str:
        kind = "full sync" if self.full else "synced"
        words = f"{kind} of {self.services} services: {self.writes} writes in {self.duration_s * 1000:.1f} ms"
        if self.deferred:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.deferred.items()))
            words += f"; left to iptables: {reasons}"
        return f"{words} via {self.datapath}"


class Datapath(Protocol):
    @property
    def name(self) -> str:
        """ "ebpf" or "iptables": the one in charge."""
        ...

    def probe(self) -> Support:
        """Can this datapath run here? Changes nothing."""
        ...

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        """Make the kernel hold what `table` says.

        A partial sync looks at `dirty` services only; a full one at everything, what earlier processes left included.
        Raises DatapathError when the kernel does not hold the wanted state; the next call is then a full one.
        """
        ...

    def lost(self) -> tuple[str, ...]:
        """What others took out of force since the last sync, such as "IPv4 nat: our chains"; a full sync restores it.

        Cheap at any size, so it cannot see everything: altered rules or entries are found by a full sync only. Nothing
        is lost before the first sync.
        """
        ...

    def examine(self) -> Iterator[tuple[str, ...]] | None:
        """A look that sees everything, in steps of a few milliseconds: each says what it found altered.

        Syncs may come between two steps, and a full sync restores what was found. None: only a full sync sees more
        than `lost`.
        """
        ...

    def dump(self) -> str:
        """What the kernel holds, sorted, one entry a line."""
        ...

    def cleanup(self) -> None:
        """Leave nothing behind. Safe to call twice."""
        ...
