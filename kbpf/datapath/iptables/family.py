"""One family's rules: the rule book, the tool that writes them, and whether the kernel is in step with the book.

Observe, plan, apply. Called by the backend for each family; raises CommandFailed when the kernel did not take it, and
does a full sync the next time then. A partial sync that is refused becomes a full one at once: what we remembered of
the kernel is not so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from msgspec.structs import replace

from kbpf.clock import Clock
from kbpf.datapath.interface import RuleCount
from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.book import RuleBook
from kbpf.datapath.iptables.commands import Tool
from kbpf.datapath.iptables.plan import Difference, against_applied, against_observed, arrange
from kbpf.datapath.iptables.ruleset import RestoreInput, Table, parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.static import SharedChains, shared_chains
from kbpf.errors import CommandFailed
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable


class Written(NamedTuple):
    full: bool
    writes: int
    rules: Mapping[str, RuleCount]
    warnings: tuple[str, ...] = ()
    refused_partial: bool = False


class FamilyRules:
    def __init__(self, tool: Tool, settings: IptablesSettings, clock: Clock) -> None:
        self.tool = tool
        self.book = RuleBook(tool.family, settings)
        self._applied: SharedChains | None = None
        """The shared chains that the kernel holds; None when that is not known."""
        self._sweeper = Sweeper(settings.sync_period_s, clock)

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> Written:
        applied = self._applied
        if full or applied is None:
            return self._sync_all(table)
        try:
            return self._sync_changed(table, dirty, applied)
        except CommandFailed as error:
            written = self._sync_all(table)
            warning = f"rules were not as we left them, so everything was compared; a partial sync got: {error}"
            return written._replace(warnings=(warning, *written.warnings), refused_partial=True)

    def forget(self) -> None:
        """The kernel may have changed: observe it before the next write."""
        self._applied = None

    def flushed_tables(self) -> tuple[str, ...]:
        """Tables that somebody emptied: the canary is gone. Asks nothing before the first sync."""
        if self._applied is None:
            return ()
        canaries = [key for key in self._applied.present if key.name == names.CANARY]
        return tuple(key.table.value for key in canaries if self.tool.lacks(key))

    def _sync_changed(self, table: ServiceTable, dirty: Set[ServiceName], applied: SharedChains) -> Written:
        turned = self.book.update(table, dirty)
        entries_turned = any(
            [rules.entries for rules in service.before] != [rules.entries for rules in service.after]
            for service in turned.values()
        )
        wanted = self._shared_chains() if entries_turned else applied
        return self._apply(against_applied(turned.values(), applied, wanted), wanted)

    def _sync_all(self, table: ServiceTable) -> Written:
        applied, self._applied = self._applied, None
        observed = parse_save(self.tool.save())
        turned = self.book.update_all(table)
        wanted = self._shared_chains()
        difference = against_observed(self.book, wanted, observed)
        warnings = difference.warnings
        foreign_work = self._sweeper.without_waiting(difference).described
        if applied == wanted and not turned and foreign_work:
            warnings = (f"another program changed our rules, put back: {foreign_work}", *warnings)
        return self._apply(difference, wanted)._replace(full=True, warnings=warnings)

    def _shared_chains(self) -> SharedChains:
        return shared_chains(self.book.entries(), self.book.family, self.book.settings)

    def _apply(self, difference: Difference, wanted: SharedChains) -> Written:
        self._applied = None  # until all of it is known to be in the kernel
        swept = self._sweeper.sweep(difference, may_wait=self.book.is_large)
        inputs = arrange(swept, self.tool.chunk_chains)
        for restore_input in inputs:
            self.tool.restore(restore_input.text)
        self._applied = wanted
        return Written(False, sum(each.writes for each in inputs), self._count_rules(inputs, wanted))

    def _count_rules(self, inputs: Sequence[RestoreInput], wanted: SharedChains) -> dict[str, RuleCount]:
        held = Counter({Table.NAT: self.book.rules_in_bodies})
        for key, chain in (*wanted.foundation.items(), *wanted.dispatch.items()):
            held[key.table] += len(chain.rules)
        written: Counter[Table] = Counter()
        for each in inputs:
            written.update({part.table: part.rules for part in each.tables})
        return {table.value: RuleCount(held[table], written[table]) for table in (Table.FILTER, Table.NAT)}


class Sweeper:
    """In large clusters kube-proxy deletes chains of what is gone at most once in each sync period; so do we."""

    def __init__(self, period_s: float, clock: Clock) -> None:
        self._period_s = period_s
        self._clock = clock
        self._next_at = clock.monotonic()
        self._waiting: set[str] = set()

    def without_waiting(self, difference: Difference) -> Difference:
        return replace(difference, stale=tuple(name for name in difference.stale if name not in self._waiting))

    def sweep(self, difference: Difference, *, may_wait: bool) -> Difference:
        """`difference` with the chains that are deleted now. One that waits and is wanted again is none of them."""
        self._waiting -= {chain.name for body in difference.bodies for chain in body}
        self._waiting |= {*difference.stale}
        now = self._clock.monotonic()
        if may_wait and now < self._next_at:
            return replace(difference, stale=())
        stale, self._waiting = self._waiting, set()
        self._next_at = now + self._period_s
        return replace(difference, stale=tuple(sorted(stale, key=names.removal_order)))
