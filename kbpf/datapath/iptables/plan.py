"""From what is wanted and what is there to the restore inputs that bring the one to the other. Pure.

A difference is taken against the kernel (full sync) or against what was last applied (partial sync); `arrange` puts it
into an order in which no service is ever half there: a service port's chains in one transaction, what jumps to them
afterwards, deletions last. Between two inputs, and after a crash there, every packet meets working rules.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.book import RuleBook, Turned
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import Chain, ChainKey, RestoreInput, Ruleset, Table, TableInput
from kbpf.datapath.iptables.static import JUMPS, Jump, SharedChains, jump_positions, shared_chains

_TARGET = re.compile(r" -[jg] (KUBE-\S+)")

NAMED_CHAINS = 3
"""So many chains are named in a warning, the others counted."""


class Placed(NamedTuple):
    table: Table
    chain: Chain


class Difference(msgspec.Struct, frozen=True):
    present: tuple[ChainKey, ...] = ()
    """Chains that must exist and do not."""
    foundation: tuple[Placed, ...] = ()
    bodies: tuple[tuple[Chain, ...], ...] = ()
    """What must be written of each service port; never spread over two transactions."""
    dispatch: tuple[Placed, ...] = ()
    edits: Mapping[Table, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Jumps of built-in chains to insert or, when there are too many of them, to delete."""
    stale: tuple[str, ...] = ()
    """Per-service chains to delete."""
    warnings: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """In a few words; empty when there is no difference."""
        chains = [f"{key.table.value} {key.name}" for key in self.present]
        chains += [f"{placed.table.value} {placed.chain.name}" for placed in (*self.dispatch, *self.foundation)]
        chains += [f"nat {chain.name}" for body in self.bodies for chain in body]
        words = chains[:NAMED_CHAINS]
        if len(chains) > NAMED_CHAINS:
            words.append(f"{len(chains) - NAMED_CHAINS} more chains")
        words += [f"{table.value} {edit}" for table, edits in self.edits.items() for edit in edits]
        if self.stale:
            words.append(f"{len(self.stale)} chains that are not wanted")
        return ", ".join(words)


# -- differences -------------------------------------------------------------------------------------------------------


def against_applied(turned: Iterable[Turned], before: SharedChains, after: SharedChains) -> Difference:
    """What a partial sync writes: the chains whose text changed."""
    bodies: list[tuple[Chain, ...]] = []
    stale: list[str] = []
    for service in turned:
        old = {chain.name: chain for rules in service.before for chain in rules.chains}
        for rules in service.after:
            bodies.append(tuple(chain for chain in rules.chains if old.pop(chain.name, None) != chain))
        stale += old
    return Difference(
        bodies=tuple(filter(None, bodies)),
        dispatch=tuple(
            Placed(key.table, chain) for key, chain in after.dispatch.items() if before.dispatch.get(key) != chain
        ),
        edits=_turned_jumps(before.jumps, after.jumps),
        stale=tuple(sorted(stale, key=names.removal_order)),
    )


def against_observed(book: RuleBook, shared: SharedChains, observed: Ruleset) -> Difference:
    """What a full sync writes: whatever the kernel does not hold, and not one rule more."""
    nat = observed.get(Table.NAT, {})
    wanted = [*book.bodies()]
    bodies = [tuple([chain for chain in body if not _holds(nat, chain)]) for body in wanted]
    stale, kept, warnings = _stale(observed, {chain.name for body in wanted for chain in body})
    written = {*shared.foundation, *shared.dispatch}
    edits, ahead = _jump_edits(observed, shared.jumps)
    return Difference(
        present=tuple(key for key in shared.present if key not in written and not _has(observed, key)),
        foundation=_missing(shared.foundation, observed),
        bodies=(*filter(None, bodies), *((Chain(name),) for name in kept)),
        dispatch=_missing(shared.dispatch, observed),
        edits=edits,
        stale=stale,
        warnings=(*warnings, *ahead),
    )


def _has(observed: Ruleset, key: ChainKey) -> bool:
    return key.name in observed.get(key.table, {})


def _missing(chains: Mapping[ChainKey, Chain], observed: Ruleset) -> tuple[Placed, ...]:
    return tuple(
        Placed(key.table, chain) for key, chain in chains.items() if not _holds(observed.get(key.table, {}), chain)
    )


def _holds(chains: Mapping[str, Chain], wanted: Chain) -> bool:
    there = chains.get(wanted.name)
    return (
        there is not None
        and len(there.rules) == len(wanted.rules)
        and all(
            theirs == ours or parse_rule(theirs) == parse_rule(ours)
            for theirs, ours in zip(there.rules, wanted.rules, strict=True)
        )
    )


def _stale(observed: Ruleset, wanted: set[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Chains to delete; those that can only be emptied, since a foreign rule jumps there; and words about these."""
    nat = observed.get(Table.NAT, {})
    unwanted = [name for name in nat if names.is_service_chain(name) and name not in wanted]
    held = _foreign_targets(nat)
    kept = tuple(name for name in unwanted if name in held and nat[name].rules)
    warnings = tuple(f"chain {name} is emptied and stays: a rule that is not ours jumps to it" for name in kept)
    stale = sorted((name for name in unwanted if name not in held), key=names.removal_order)
    return tuple(stale), kept, warnings


def _foreign_targets(chains: Mapping[str, Chain]) -> set[str]:
    """Per-service chains to which a rule outside of our chains jumps."""
    ours = {names.SERVICES, names.NODE_PORTS}
    return {
        target
        for name, chain in chains.items()
        if name not in ours and not names.is_service_chain(name)
        for rule in chain.rules
        for target in _TARGET.findall(rule)
    }


def _turned_jumps(before: Iterable[Jump], after: Iterable[Jump]) -> dict[Table, tuple[str, ...]]:
    edits: dict[Table, tuple[str, ...]] = {}
    for jump in JUMPS:
        if (jump in before) is not (jump in after):
            edits[jump.table] = (*edits.get(jump.table, ()), jump.deletion if jump in before else jump.insertion)
    return edits


def _jump_edits(observed: Ruleset, wanted: Iterable[Jump]) -> tuple[dict[Table, tuple[str, ...]], list[str]]:
    """Each jump once. One that is there stays where it is, whoever put a rule above it; that is only reported."""
    edits: dict[Table, tuple[str, ...]] = {}
    ahead: list[str] = []
    for jump in JUMPS:
        positions, is_wanted = jump_positions(jump, observed), jump in wanted
        if is_wanted and not positions:
            edits[jump.table] = (*edits.get(jump.table, ()), jump.insertion)
        for _ in positions[is_wanted:]:
            edits[jump.table] = (*edits.get(jump.table, ()), jump.deletion)
        if is_wanted and jump.table is Table.NAT and jump.target == names.SERVICES and any(positions[:1]):
            count = positions[0]
            rules = "rule stands" if count == 1 else "rules stand"
            ahead.append(f"nat {jump.source}: {count} {rules} above the jump to {jump.target} and may take its traffic")
    return edits, ahead


# -- arrangement -------------------------------------------------------------------------------------------------------


def arrange(difference: Difference, chunk_chains: int | None) -> tuple[RestoreInput, ...]:
    """Restore inputs, to be applied in this order. `chunk_chains` bounds the chains of one; None: all in one."""
    chains = sum(map(len, difference.bodies)) + len(difference.stale)
    if chunk_chains is None or chains <= chunk_chains:
        inputs = [_input(difference)]
    else:
        inputs = [_input(part) for part in _chunks(difference, chunk_chains)]
    return tuple(_in_fast_order(each) for each in inputs if each.tables)


def _in_fast_order(restore_input: RestoreInput) -> RestoreInput:
    """Chains from the last name to the first: iptables keeps them sorted, and inserts at the front in half the time."""
    return RestoreInput(
        tuple(
            part._replace(chains=tuple(sorted(part.chains, key=lambda chain: chain.name, reverse=True)))
            for part in restore_input.tables
        )
    )


def _chunks(difference: Difference, size: int) -> Iterator[Difference]:
    yield Difference(foundation=difference.foundation)
    for bodies in _groups(difference.bodies, size):
        yield Difference(bodies=bodies)
    yield replace(difference, foundation=(), bodies=(), stale=())
    for start in range(0, len(difference.stale), size):
        yield Difference(stale=difference.stale[start : start + size])


def _groups(bodies: tuple[tuple[Chain, ...], ...], size: int) -> Iterator[tuple[tuple[Chain, ...], ...]]:
    """Whole bodies, as many as have `size` chains together, one at least."""
    group: list[tuple[Chain, ...]] = []
    chains = 0
    for body in bodies:
        if group and chains + len(body) > size:
            yield tuple(group)
            group, chains = [], 0
        group.append(body)
        chains += len(body)
    yield tuple(group)


def _input(difference: Difference) -> RestoreInput:
    parts: list[TableInput] = []
    for table in Table:
        chains = [placed.chain for placed in (*difference.dispatch, *difference.foundation) if placed.table is table]
        chains += [Chain(key.name) for key in difference.present if key.table is table]
        is_nat = table is Table.NAT
        if is_nat:
            chains += [chain for body in difference.bodies for chain in body]
        edits = difference.edits.get(table, ())
        parts.append(TableInput(table, tuple(chains), edits, difference.stale if is_nat else ()))
    return RestoreInput(tuple(part for part in parts if not part.is_empty))


def complete_input(book: RuleBook) -> RestoreInput:
    """Everything for an empty host in one piece, without the jumps: what kube-proxy writes in a full sync."""
    shared = shared_chains(book.entries(), book.family, book.settings)
    return _input(
        Difference(
            foundation=_missing(shared.foundation, {}),
            bodies=tuple(book.bodies()),
            dispatch=_missing(shared.dispatch, {}),
        )
    )
