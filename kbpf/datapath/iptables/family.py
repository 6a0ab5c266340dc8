"""One family's rules: the rule book, the tool that writes them, and whether the kernel is in step with the book.

Observe, plan, apply. Called by the backend for each family; raises CommandFailed when the kernel did not take it, and
does a full sync the next time then.
"""

from collections.abc import Set
from typing import NamedTuple

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.book import RuleBook
from kbpf.datapath.iptables.commands import Tool
from kbpf.datapath.iptables.plan import Difference, against_applied, against_observed, arrange
from kbpf.datapath.iptables.ruleset import parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.static import PRESENT, SharedChains, shared_chains
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable


class Written(NamedTuple):
    full: bool
    writes: int
    warnings: tuple[str, ...] = ()


class FamilyRules:
    def __init__(self, tool: Tool, settings: IptablesSettings) -> None:
        self.tool = tool
        self.book = RuleBook(tool.family, settings)
        self._applied: SharedChains | None = None
        """The shared chains that the kernel holds; None when that is not known."""

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> Written:
        applied = self._applied
        if full or applied is None:
            return self._sync_all(table)
        turned = self.book.update(table, dirty)
        if not turned:
            return Written(False, 0)
        entries_turned = any(
            [rules.entries for rules in service.before] != [rules.entries for rules in service.after]
            for service in turned.values()
        )
        wanted = self._shared_chains() if entries_turned else applied
        return Written(False, self._apply(against_applied(turned.values(), applied, wanted), wanted))

    def forget(self) -> None:
        """The kernel may have changed: observe it before the next write."""
        self._applied = None

    def flushed_tables(self) -> tuple[str, ...]:
        """Tables that somebody emptied: the canary is gone. Asks nothing before the first sync."""
        if self._applied is None:
            return ()
        canaries = [key for key in PRESENT if key.name == names.CANARY]
        return tuple(key.table.value for key in canaries if self.tool.lacks(key))

    def _sync_all(self, table: ServiceTable) -> Written:
        observed = parse_save(self.tool.save())
        self.book.update_all(table)
        wanted = self._shared_chains()
        difference = against_observed(self.book, wanted, observed)
        return Written(True, self._apply(difference, wanted), difference.warnings)

    def _shared_chains(self) -> SharedChains:
        return shared_chains(self.book.entries(), self.book.family, self.book.settings)

    def _apply(self, difference: Difference, wanted: SharedChains) -> int:
        self._applied = None  # until all of it is known to be in the kernel
        inputs = arrange(difference, self.tool.chunk_chains)
        for restore_input in inputs:
            self.tool.restore(restore_input.text)
        self._applied = wanted
        return sum(each.writes for each in inputs)
