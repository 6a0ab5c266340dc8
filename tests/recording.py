"""A datapath that remembers what it was asked to hold, and fails when it is told to."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from kbpf.datapath.interface import Answer, FamilyReport, Support, SyncReport
from kbpf.errors import KbpfError
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ResolvedPort, ServiceTable


@dataclass
class RecordingDatapath:
    """`held` is what the kernel would hold; `syncs` are (dirty services, full) of the calls that succeeded.

    `repairs` are writes of full syncs for which no change of ours is the reason, `missing` is what `lost`
    answers, `steps` what `examine` does; without any, only a full sync looks closer.
    """

    name: str = "recording"
    failures: list[Exception] = field(default_factory=list)
    held: dict[ServiceName, tuple[ResolvedPort, ...]] = field(default_factory=dict)
    syncs: list[tuple[frozenset[ServiceName], bool]] = field(default_factory=list)
    repairs: int = 0
    missing: tuple[str, ...] = ()
    steps: list[tuple[str, ...]] = field(default_factory=list)
    duration_s: float = 0.0
    warnings: tuple[str, ...] = ()
    cleanups: int = 0
    dumps: int = 0
    retirements: int = 0
    retirement_failure: KbpfError | None = None
    is_busy: bool = False
    """Connections still live on it when it is to retire."""

    def probe(self) -> Support:
        return Support(Answer.YES)

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        if self.failures:
            raise self.failures.pop(0)
        names = set(table.services) if full else dirty
        if full:
            self.held.clear()
        for name in names:
            if ports := table.ports_of(name):
                self.held[name] = ports
            else:
                self.held.pop(name, None)
        self.syncs.append((frozenset(dirty), full))
        writes = len(dirty) + (self.repairs if full else 0)
        families = dict.fromkeys(Family, FamilyReport(self.duration_s, full))
        return SyncReport(
            self.name, full, len(names), writes, self.duration_s, warnings=self.warnings, families=families
        )

    def lost(self) -> tuple[str, ...]:
        return self.missing

    def examine(self) -> Iterator[tuple[str, ...]] | None:
        return iter(self.steps) if self.steps else None

    def dump(self) -> str:
        self.dumps += 1
        return "".join(f"{name}\n" for name in sorted(self.held))

    def cleanup(self) -> None:
        self.cleanups += 1
        self.held.clear()

    def retire(self) -> bool:
        self.retirements += 1
        self.held.clear()
        if self.retirement_failure:
            raise self.retirement_failure
        return not self.is_busy
