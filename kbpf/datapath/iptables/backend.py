"""The iptables datapath: both families behind one seam.

Called by the proxier through `kbpf.datapath.interface`. A family that fails is named in the error; the other one is
written all the same.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from kbpf.clock import Clock
from kbpf.datapath.interface import Answer, FamilyReport, Feature, Support, SyncReport
from kbpf.datapath.iptables.commands import Flavour, Run, Tool, find_tools, run_process
from kbpf.datapath.iptables.counters import COUNTERS, match_works
from kbpf.datapath.iptables.family import FamilyRules
from kbpf.datapath.iptables.host import HostTools, choose_tools
from kbpf.datapath.iptables.removal import is_ours, removal
from kbpf.datapath.iptables.ruleset import parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.static import JUMPS, jump_positions
from kbpf.errors import DatapathError, DatapathUnavailable, RulesLocked
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable

log = logging.getLogger(__name__)

FRESH_S = 1.0
"""So long what the probe found needs no second look. A first sync that waits longer, as for the API server, looks
again: the host may have another kind of rules by then."""


class IptablesDatapath:
    name = "iptables"

    def __init__(
        self,
        settings: IptablesSettings,
        clock: Clock,
        *,
        flavour: Flavour | None = None,
        families: Sequence[Family] = tuple(Family),
        create_counters: Callable[[Sequence[str]], bool] | None = None,
        run: Run = run_process,
    ) -> None:
        """`flavour` None: the one that the host uses, found out at the first sync.

        `create_counters` makes named counters in the kernel; without it, or where it answers False, rules do not count.
        """
        self._settings = settings
        self._clock = clock
        self._flavour = flavour
        self._wanted_families = families
        self._create_counters = create_counters
        self._counting: frozenset[Family] = frozenset()
        self._run = run
        self._families: dict[Family, FamilyRules] = {}
        self._found: tuple[HostTools, float] | None = None
        """By the last probe, and when."""
        self._said: frozenset[str] = frozenset()

    # -- the seam ----------------------------------------------------------------------------------------------------

    def probe(self) -> Support:
        try:
            host = self._choose()
        except DatapathUnavailable as error:
            return Support(Answer.NO, str(error))
        except RulesLocked as error:
            return Support(Answer.UNKNOWN, str(error))
        self._found = host, self._clock.monotonic()
        features = []
        for family in self._wanted_families:
            tool = host.tools.get(family)
            reason = f"{tool.name} {'.'.join(map(str, tool.version))}" if tool else "; ".join(host.warnings)
            features.append(Feature(f"iptables {family.value}", Answer.YES if tool else Answer.NO, reason))
        return Support(Answer.YES, "", tuple(features))

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        started = self._clock.monotonic()
        warnings = list(self._open())
        errors: dict[Family, DatapathError] = {}
        writes, was_full = 0, False
        reports: dict[Family, FamilyReport] = {}
        for family, rules in self._families.items():
            began = self._clock.monotonic()
            try:
                written = rules.sync(table, dirty, full=full)
            except DatapathError as error:
                errors[family] = error
                if isinstance(error, RulesLocked):
                    break  # it is one lock for all families
                continue
            writes += written.writes
            was_full |= written.full
            took_s = self._clock.monotonic() - began
            reports[family] = FamilyReport(took_s, written.full, written.rules, written.refused_partial)
            warnings += [f"{family.value}: {warning}" for warning in written.warnings]
            warnings += [f"{service}: {reason}, left out" for service, reason in sorted(rules.book.refused.items())]
        if errors:
            raise _joined(errors)
        services = len(list(table.services)) if was_full else len(dirty)
        duration_s = self._clock.monotonic() - started
        return SyncReport(
            self.name,
            was_full,
            services,
            writes,
            duration_s,
            warnings=self._news(warnings, was_full),
            families=reports,
        )

    def lost(self) -> tuple[str, ...]:
        """Tables in which another program deleted our chains: the canary is gone."""
        lost: list[str] = []
        for family, rules in self._families.items():
            try:
                lost += [f"{family.value} {table}: our chains" for table in rules.flushed_tables()]
            except RulesLocked:
                break  # who waits for the lock at every question keeps changes waiting; there is a next look
        return tuple(lost)

    def examine(self) -> None:
        """None, whoever reads all rules to see what is altered has done most of a full sync."""

    def dump(self) -> str:
        """Our chains and the jumps to them, with table and family in front."""
        tools = [rules.tool for rules in self._families.values()] or self._choose().tools.values()
        return "".join(f"{line}\n" for tool in tools for line in _dump(tool))

    def cleanup(self) -> None:
        """Goes on after an error and raises the first at the end."""
        errors: list[str] = []
        for tool in self._all_tools():
            try:
                _clean(tool)
            except DatapathError as error:
                errors.append(f"{tool.family.value}: {error}")
        for rules in self._families.values():
            rules.forget()
        if errors:
            raise DatapathError("; ".join(errors))

    # -- beyond it ---------------------------------------------------------------------------------------------------

    def configure(self, settings: IptablesSettings) -> None:
        """New settings, such as the addresses of node ports; the next sync is a full one if they differ."""
        if settings != self._settings:
            self._settings = settings
            self._families = {family: self._family(each.tool) for family, each in self._families.items()}

    def _open(self) -> tuple[str, ...]:
        """Find the tools once, and what they can do; what speaks against some of them is said then."""
        if self._families:
            return ()
        host = self._found_just_now() or self._choose()
        if self._create_counters and self._create_counters(COUNTERS):
            self._counting = frozenset(family for family, tool in host.tools.items() if match_works(tool))
        self._families = {family: self._family(tool) for family, tool in host.tools.items()}
        return host.warnings

    def _found_just_now(self) -> HostTools | None:
        found, self._found = self._found, None
        return found[0] if found and self._clock.monotonic() - found[1] < FRESH_S else None

    def _choose(self) -> HostTools:
        return choose_tools(self._run, self._flavour, self._wanted_families)

    def _family(self, tool: Tool) -> FamilyRules:
        return FamilyRules(tool, replace(self._settings, has_counters=tool.family in self._counting), self._clock)

    def _all_tools(self) -> Iterator[Tool]:
        """Both flavours unless one was asked for: the choice may have been another one when the rules were written."""
        for family in self._wanted_families:
            tools, _ = find_tools(self._run, family)
            yield from (tool for flavour, tool in tools.items() if self._flavour in (None, flavour))

    def _news(self, warnings: list[str], was_full: bool) -> tuple[str, ...]:
        """Warnings that were not there before: a lasting oddity is said once. Only a full sync sees all of them."""
        news = tuple(warning for warning in dict.fromkeys(warnings) if warning not in self._said)
        self._said = frozenset(warnings) if was_full else self._said | frozenset(news)
        return news


def _joined(errors: Mapping[Family, DatapathError]) -> DatapathError:
    words = "; ".join(f"{family.value}: {error}" for family, error in errors.items())
    is_lock = all(isinstance(error, RulesLocked) for error in errors.values())
    joined = RulesLocked(words) if is_lock else DatapathError(words)
    # Whoever waits for one lock waits in both families.
    joined.families = frozenset(Family if is_lock else errors)
    joined.refused_rules = True
    return joined


def _dump(tool: Tool) -> Iterator[str]:
    """Sorted by table and chain; the rules of a chain keep their order, since it is their meaning."""
    observed = parse_save(tool.save())
    for table, chains in sorted(observed.items(), key=lambda item: item[0].value):
        head = f"{tool.family.value} {table.value}"
        for jump in sorted((jump for jump in JUMPS if jump.table is table), key=lambda jump: jump.rule):
            for position in jump_positions(jump, observed):
                yield f"{head} {chains[jump.source].rules[position]}"
        for name in sorted(name for name in chains if is_ours(table, name)):
            yield f"{head} -N {name}"
            yield from (f"{head} {rule}" for rule in chains[name].rules)


def _clean(tool: Tool) -> None:
    inputs, warnings = removal(parse_save(tool.save()), tool.chunk_chains)
    for restore_input in inputs:
        tool.restore(restore_input.text)
    if inputs:
        log.info(f"{tool.name}: removed the chains that kbpf or a kube-proxy had left")
    for warning in warnings:
        log.warning(f"{tool.name}: {warning}")
