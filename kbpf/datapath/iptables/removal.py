"""What cleanup writes: our jumps, then our chains, and nothing of others'. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import Chain, RestoreInput, Ruleset, Table, TableInput
from kbpf.datapath.iptables.static import JUMPS, Jump, jump_positions

OWN_CHAINS = {
    Table.MANGLE: frozenset({names.CANARY}),
    Table.FILTER: frozenset(
        {names.CANARY, names.TRIAL, *(jump.target for jump in JUMPS if jump.table is Table.FILTER)}
    ),
    Table.NAT: frozenset({names.CANARY, names.SERVICES, names.NODE_PORTS, names.POSTROUTING, names.MARK_MASQUERADE}),
}

_TARGET = re.compile(r" -[jg] (KUBE-\S+)")


class Leaving(NamedTuple):
    """One table's part of the cleanup."""

    part: TableInput
    warnings: tuple[str, ...]


def removal(observed: Ruleset, chunk_chains: int | None) -> tuple[tuple[RestoreInput, ...], tuple[str, ...]]:
    """The inputs that leave nothing of ours behind, in order, and words about the chains that must stay.

    The first one takes the jumps away, so that no packet meets what is half removed. KUBE-FIREWALL belongs to kubelet
    as well and is left alone where a kubelet is at work.
    """
    has_kubelet = any(names.KUBELET_CHAINS & chains.keys() for chains in observed.values())
    spared = {names.LOCALHOST_FIREWALL} if has_kubelet else set[str]()
    leaving = [_leaving(table, observed, spared) for table in observed]
    first: list[TableInput] = []
    rest: list[RestoreInput] = []
    for part, _ in leaving:
        size = chunk_chains or max(1, len(part.removed))
        first.append(part._replace(removed=part.removed[:size]))
        for start in range(size, len(part.removed), size):
            removed = part.removed[start : start + size]
            rest.append(RestoreInput((TableInput(part.table, removed=removed),)))
    inputs = (RestoreInput(tuple(part for part in first if part.writes)), *rest)
    return tuple(each for each in inputs if each.writes), tuple(word for each in leaving for word in each.warnings)


def _leaving(table: Table, observed: Ruleset, spared: set[str]) -> Leaving:
    chains = observed[table]
    jumps = [jump for jump in JUMPS if jump.table is table and jump.target not in spared]
    edits = tuple(jump.deletion for jump in jumps for _ in jump_positions(jump, observed))
    ours = sorted((name for name in chains if is_ours(table, name) and name not in spared), key=names.removal_order)
    held = _held(table, chains, jumps)
    emptied = tuple(Chain(name) for name in ours if name in held and chains[name].rules)
    removed = tuple(name for name in ours if name not in held)
    warnings = (f"chain {name} stays, empty: a rule that is not ours jumps to it" for name in ours if name in held)
    return Leaving(TableInput(table, emptied, edits, removed), tuple(warnings))


def is_ours(table: Table, name: str) -> bool:
    return name in OWN_CHAINS[table] or (table is Table.NAT and names.is_service_chain(name))


def _held(table: Table, chains: Mapping[str, Chain], jumps: list[Jump]) -> set[str]:
    """Chains to which some rule jumps that cleanup does not delete."""
    deleted = [parse_rule(jump.rule) for jump in jumps]
    return {
        target
        for name, chain in chains.items()
        if not is_ours(table, name)
        for rule in chain.rules
        for target in _TARGET.findall(rule)
        if parse_rule(rule) not in deleted
    }
