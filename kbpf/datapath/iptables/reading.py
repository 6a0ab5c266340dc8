"""From the rules of one family back to frontends with their backends, in words that people know. Pure.

The comments carry the names of the Services, so that `kbpf status` can tell them without asking anybody. Rules of a
kube-proxy read the same.
"""

import re
from collections.abc import Iterator, Mapping

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.render import ENTRY_TEXT, VERDICT_TEXT
from kbpf.datapath.iptables.rule import Rule, parse_rule
from kbpf.datapath.iptables.ruleset import Chain, Ruleset, Table
from kbpf.model.address import Address, Family, parse_address
from kbpf.model.held import HeldFrontend, held_key
from kbpf.model.names import Protocol
from kbpf.model.table import Backend, FrontendKind

_KINDS = {text: kind for kind, text in ENTRY_TEXT.items()}
_VERDICTS = frozenset(VERDICT_TEXT.values())
_PROTOCOLS = frozenset(protocol.value.lower() for protocol in Protocol)
_NAMED = re.compile(r"(?P<name>\S+/\S+?) (?P<what>.+)")
_ENTRIES = (
    (Table.NAT, names.SERVICES),
    (Table.NAT, names.NODE_PORTS),
    (Table.FILTER, names.SERVICES),
    (Table.FILTER, names.EXTERNAL_SERVICES),
)


def frontends(ruleset: Ruleset, family: Family) -> Iterator[HeldFrontend]:
    """Each once; one that is refused to some callers and served to others counts as served."""
    seen = set()
    for table, chain in _ENTRIES:
        for rule in _rules(ruleset, table, chain):
            held = _frontend(rule, table, ruleset, family)
            if held is not None and held.key not in seen:
                seen.add(held.key)
                yield held


def _rules(ruleset: Ruleset, table: Table, name: str) -> Iterator[Rule]:
    return map(parse_rule, ruleset.get(table, {}).get(name, Chain(name)).rules)


def _frontend(rule: Rule, table: Table, ruleset: Ruleset, family: Family) -> HeldFrontend | None:
    options = rule.options
    protocol, port, said = options.get("-p", ""), options.get("--dport", ""), options.get("--comment", "")
    if protocol not in _PROTOCOLS or not port.isdigit():
        return None
    named = _NAMED.fullmatch(said)
    what = named["what"] if named else ""
    is_node_port = "-d" not in options or rule.chain == names.NODE_PORTS
    if what not in _KINDS and what not in _VERDICTS and not (is_node_port and names.is_service_chain(rule.target)):
        return None
    address = None if is_node_port else parse_address(options["-d"])
    kind = FrontendKind.NODE_PORT if is_node_port else _KINDS.get(what, _refused_kind(rule))
    cluster, local = _backends(rule.target, ruleset.get(Table.NAT, {})) if table is Table.NAT else ((), ())
    key = held_key(family, address, int(port), protocol)
    return HeldFrontend(key, kind, named["name"] if named else said, cluster, local, by_rules=True)


def _refused_kind(rule: Rule) -> FrontendKind:
    """What is refused on an address says no more than on which side that is."""
    return FrontendKind.CLUSTER_IP if rule.chain == names.SERVICES else FrontendKind.EXTERNAL_IP


def _backends(target: str, chains: Mapping[str, Chain]) -> tuple[tuple[Backend, ...], tuple[Backend, ...]]:
    """What the chains behind `target` lead to: through the chain of the cluster list, and of the local one."""
    lists: dict[str, dict[Backend, None]] = {"KUBE-SVC-": {}, "KUBE-SVL-": {}}
    todo = [(target, "")]
    seen = set()
    while todo:
        chain, prefix = todo.pop()
        prefix = chain[:9] if chain[:9] in lists else prefix
        if (chain, prefix) in seen or not names.is_service_chain(chain):
            continue
        seen.add((chain, prefix))
        for rule in map(parse_rule, chains.get(chain, Chain(chain)).rules):
            backend = destination(rule)
            if backend is not None and prefix:
                lists[prefix][backend] = None
            todo.append((rule.target, prefix))
    cluster, local = (tuple(sorted(found)) for found in lists.values())
    return cluster, local


def destination(rule: Rule) -> Backend | None:
    """Where a rule that rewrites the destination sends its packets."""
    text = rule.options.get("--to-destination", "")
    address, _, port = text.rpartition(":")
    return Backend(Address(address.strip("[]")), int(port)) if port.isdigit() else None
