"""Which tools serve this host: the flavour that everybody else here uses, and the families that work.

A container image brings both flavours, the host uses one. The evidence is, in this order: what was asked for, kubelet's
chains (KEP-3178), where more rules are.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbpf.datapath.iptables.commands import Flavour, Run, Tool, find_tools
from kbpf.datapath.iptables.names import KUBELET_CHAINS
from kbpf.datapath.iptables.ruleset import Table, parse_save
from kbpf.errors import CommandFailed, DatapathUnavailable
from kbpf.model.address import Family


class HostTools(NamedTuple):
    tools: Mapping[Family, Tool]
    """One a family that works."""
    warnings: tuple[str, ...]


class Evidence(NamedTuple):
    has_kubelet: bool
    rules: int


def choose_tools(run: Run, wish: Flavour | None, families: Iterable[Family]) -> HostTools:
    """The tool of each family. Raises DatapathUnavailable when no family works at all.

    Raises RulesLocked when it is too early to tell: a family that was left out is missing as long as the process lives.
    """
    found: dict[Family, dict[Flavour, Tool]] = {}
    warnings: list[str] = []
    for family in families:
        found[family], refused = find_tools(run, family, wish)
        if not found[family]:
            warnings += [f"{family.value} is left out: {reason}" for reason in refused]
    flavour, doubts = (wish, ()) if wish else choose_flavour(found)
    warnings += doubts
    tools: dict[Family, Tool] = {}
    for family, by_flavour in found.items():
        tool = by_flavour.get(flavour)
        if tool is None:
            if by_flavour:
                warnings.append(f"{family.value} is left out: no iptables of flavour {flavour.value}")
            continue
        try:
            tool.check_nat()
        except CommandFailed as error:
            warnings.append(f"{family.value} is left out: {error}")
        else:
            tools[family] = tool
    if not tools:
        raise DatapathUnavailable(f"iptables cannot be used here: {'; '.join(warnings)}")
    return HostTools(tools, tuple(warnings))


def choose_flavour(found: Mapping[Family, Mapping[Flavour, Tool]]) -> tuple[Flavour, tuple[str, ...]]:
    """The flavour for all families, and a warning when the evidence speaks for both."""
    evidence = {flavour: _evidence(found, flavour) for flavour in Flavour}
    present = [flavour for flavour in Flavour if any(flavour in tools for tools in found.values())]
    if len(present) < 2:
        return (present or [Flavour.NFT])[0], ()
    nft, legacy = evidence[Flavour.NFT], evidence[Flavour.LEGACY]
    prefers_legacy = legacy.rules > nft.rules if legacy.has_kubelet == nft.has_kubelet else legacy.has_kubelet
    chosen = Flavour.LEGACY if prefers_legacy else Flavour.NFT
    if nft.rules and legacy.rules:
        words = f"{nft.rules} rules in iptables-nft and {legacy.rules} in iptables-legacy: both take effect"
        return chosen, (f"{words}; using {chosen.value}",)
    return chosen, ()


def _evidence(found: Mapping[Family, Mapping[Flavour, Tool]], flavour: Flavour) -> Evidence:
    has_kubelet, rules = False, 0
    for tools in found.values():
        if flavour not in tools:
            continue
        try:
            observed = parse_save(tools[flavour].save())
        except CommandFailed:
            continue  # a flavour that cannot be read holds no evidence
        has_kubelet |= bool(KUBELET_CHAINS & observed.get(Table.MANGLE, {}).keys())
        rules += sum(len(chain.rules) for chains in observed.values() for chain in chains.values())
    return Evidence(has_kubelet, rules)
