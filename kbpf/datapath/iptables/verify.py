"""One family's rules against those that should stand: a line for each difference. Pure; called for `kbpf verify`.

Compared by meaning, as a full sync compares them; whatever such a sync would write is a difference.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.book import RuleBook
from kbpf.datapath.iptables.counters import COUNTERS
from kbpf.datapath.iptables.plan import against_observed
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import Chain, Ruleset, Table
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.static import shared_chains
from kbpf.model.address import Family
from kbpf.model.table import ServiceTable


def differences(table: ServiceTable, settings: IptablesSettings, observed: Ruleset, family: Family) -> Iterator[str]:
    """What stands otherwise than `table` wants it."""
    book = RuleBook(family, replace(settings, has_counters=_counts(observed)))
    book.update_all(table)
    shared = shared_chains(book.entries(), family, book.settings)
    found = against_observed(book, shared, observed)
    head = f"iptables {family.value}"
    for key in found.present:
        yield f"{head} {key.table.value} {key.name}: no such chain"
    placed = [(each.table, each.chain) for each in (*found.foundation, *found.dispatch)]
    placed += [(Table.NAT, chain) for body in found.bodies for chain in body]
    for where, chain in placed:
        yield from _chain_differences(f"{head} {where.value} {chain.name}", chain, observed.get(where, {}))
    for where, edits in found.edits.items():
        for edit in edits:
            yield f"{head} {where.value}: {'lacks' if edit.startswith('-I') else 'has one too many'}: {edit}"
    yield from (f"{head} nat {name}: chain of no Service port" for name in found.stale)


def remains(observed: Ruleset, family: Family) -> Iterator[str]:
    """What stands of Services although no rule is wanted. The rules that are of no Service may stay for a while."""
    for name in sorted(observed.get(Table.NAT, {})):
        if names.is_service_chain(name):
            yield f"iptables {family.value} nat {name}: chain of no Service port"


def _chain_differences(head: str, wanted: Chain, chains: Mapping[str, Chain]) -> Iterator[str]:
    there = chains.get(wanted.name)
    if there is None:
        yield f"{head}: no such chain"
        return
    ours, theirs = [parse_rule(rule) for rule in wanted.rules], [parse_rule(rule) for rule in there.rules]
    lacking = [rule for rule, parsed in zip(wanted.rules, ours, strict=True) if parsed not in theirs]
    extra = [rule for rule, parsed in zip(there.rules, theirs, strict=True) if parsed not in ours]
    yield from (f"{head}: lacks: {rule}" for rule in lacking)
    yield from (f"{head}: has beyond: {rule}" for rule in extra)
    if not lacking and not extra:
        yield f"{head}: its rules stand in another order, or twice"


def _counts(observed: Ruleset) -> bool:
    """Whether rules count in named counters was found out by who wrote them."""
    chains = (chain for table in observed.values() for chain in table.values())
    return any(counter in rule for chain in chains for rule in chain.rules for counter in COUNTERS)
