"""What `iptables-save` says, as a value that two proxies can be compared by.

Counters do not matter, nor does the order of the chains, which are independent of each other. The order of the rules of
a chain does, with one exception: in the shared chains kube-proxy writes the service ports in random order, and so the
addresses with open node ports. There, and only there, these are sorted, each kind within its own place.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, zip_longest

COMMANDS = {"IPv4": "iptables-save", "IPv6": "ip6tables-save"}
SHARED = {
    ("filter", "KUBE-SERVICES"),
    ("filter", "KUBE-EXTERNAL-SERVICES"),
    ("filter", "KUBE-NODEPORTS"),
    ("filter", "KUBE-PROXY-FIREWALL"),
    ("nat", "KUBE-SERVICES"),
    ("nat", "KUBE-NODEPORTS"),
}
# `namespace/name` or `namespace/name:port` at the start of the comment.
SERVICE_PORT = re.compile(r'--comment "?([a-z0-9.-]+/[a-z0-9.-]+(?::[a-z0-9-]+)?)[ "]')
NODE_PORT_ADDRESS = re.compile(r'-d (\S+) -m comment --comment "kubernetes service nodeports;')
PORT_CHAIN = re.compile(r"-j (KUBE-(?:SVC|SVL|EXT|FW|SEP)-\w+)")
PROTOCOL = re.compile(r"-p (\w+)")


@dataclass(frozen=True, slots=True)
class Chain:
    policy: str
    """ACCEPT or DROP of a built-in chain, "-" of others."""
    rules: tuple[str, ...]


Ruleset = dict[tuple[str, str], Chain]
"""(table, chain) → its content."""


def read(namespace: str, family: str, backend: str = "") -> Ruleset:
    """What the kernel holds there. `backend`: "nft" or "legacy" instead of the machine's choice."""
    command = COMMANDS[family].replace("tables", f"tables-{backend}") if backend else COMMANDS[family]
    arguments = ["nsenter", f"--net=/run/netns/{namespace}", command]
    return parse(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def parse(text: str) -> Ruleset:
    policies: dict[tuple[str, str], str] = {}
    rules: dict[tuple[str, str], list[str]] = {}
    table = ""
    for line in text.splitlines():
        match line[:1]:
            case "*":
                table = line[1:]
            case ":":
                chain, policy, *_ = line[1:].split()
                policies[table, chain], rules[table, chain] = policy, []
            case "-":
                chain = line.split(maxsplit=2)[1]
                rules[table, chain].append(line)
    return {
        place: Chain(policies[place], tuple(_sorted_runs(lines) if place in SHARED else lines))
        for place, lines in rules.items()
    }


def _sorted_runs(rules: list[str]) -> Iterator[str]:
    """Each run of rules of one kind whose order is chance, sorted; what lies between such runs keeps its place."""
    for kind, run in groupby(rules, key=lambda rule: _random_order(rule)[0]):
        lines = list(run)
        yield from sorted(lines, key=_random_order) if kind else lines


def _random_order(rule: str) -> tuple[str, str, str]:
    """The kind of rule, empty for one whose place means something, and by what its kind is sorted."""
    protocol = PROTOCOL.search(rule)
    if name := SERVICE_PORT.search(rule):
        return "service port", name[1], protocol[1] if protocol else ""
    if address := NODE_PORT_ADDRESS.search(rule):
        return "node port address", address[1], ""
    return "", "", ""


def without_unused_chains(ruleset: Ruleset) -> Ruleset:
    """Less the chains of service ports and endpoints to which no rule leads; what they lead to goes as well."""
    used = {target for chain in ruleset.values() for rule in chain.rules for target in PORT_CHAIN.findall(rule)}
    kept = {
        place: chain for place, chain in ruleset.items() if place[1] in used or not PORT_CHAIN.match(f"-j {place[1]}")
    }
    return kept if kept == ruleset else without_unused_chains(kept)


def differences(control: Ruleset, ours: Ruleset) -> list[str]:
    """One line for each chain or rule that only one of the two has, or that stands elsewhere; empty when equal."""
    found: list[str] = []
    for place in sorted(control.keys() | ours.keys()):
        table, name = place
        theirs, own = control.get(place), ours.get(place)
        if theirs == own:
            continue
        if theirs is None or own is None:
            found.append(f"{table}: chain {name} only of {'kbpf' if theirs is None else 'kube-proxy'}")
        found += _rule_differences(table, theirs, own)
    return found


def _rule_differences(table: str, theirs: Chain | None, own: Chain | None) -> list[str]:
    control_rules, own_rules = theirs.rules if theirs else (), own.rules if own else ()
    missing = [f"{table}: only kube-proxy: {rule}" for rule in control_rules if rule not in own_rules]
    extra = [f"{table}: only kbpf: {rule}" for rule in own_rules if rule not in control_rules]
    if missing or extra or not (theirs and own):
        return missing + extra
    if theirs.policy != own.policy:
        return [f"{table}: policy {theirs.policy} of kube-proxy, {own.policy} of kbpf"]
    pairs = enumerate(zip_longest(control_rules, own_rules), 1)
    number, (first, second) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    return [f"{table}: other order or number, rule {number} of kube-proxy: {first}; of kbpf: {second}"]
