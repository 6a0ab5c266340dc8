"""What exists once a family, whatever the services: the jumps from built-in chains, and the chains they lead to.

Pure. `shared_chains` puts the entries of all service ports between the fixed rules; plan writes the result.
"""

from collections.abc import Iterable, Set
from typing import NamedTuple

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.counters import DROPPED_AS_INVALID, counts
from kbpf.datapath.iptables.render import NAT_NODE_PORTS, NAT_SERVICES, Entry
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.datapath.iptables.ruleset import Chain, ChainKey, Ruleset, Table, comment, word
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Family

NODE_PORT_TAIL = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
NEW = "-m conntrack --ctstate NEW"
PORTALS = "kubernetes service portals"
EXTERNAL_PORTALS = "kubernetes externally-visible service portals"
FIREWALL = "kubernetes load balancer firewall"


class Jump(NamedTuple):
    """A rule in a built-in chain that leads to ours."""

    table: Table
    source: str
    match: str
    text: str
    target: str

    @property
    def arguments(self) -> str:
        parts = (self.match, comment(self.text) if self.text else "", f"-j {self.target}")
        return " ".join(filter(None, parts))

    @property
    def rule(self) -> str:
        return f"-A {self.source} {self.arguments}"

    @property
    def insertion(self) -> str:
        return f"-I {self.source} 1 {self.arguments}"

    @property
    def deletion(self) -> str:
        return f"-D {self.source} {self.arguments}"


JUMPS: tuple[Jump, ...] = (
    Jump(Table.FILTER, "INPUT", NEW, EXTERNAL_PORTALS, names.EXTERNAL_SERVICES),
    Jump(Table.FILTER, "FORWARD", NEW, EXTERNAL_PORTALS, names.EXTERNAL_SERVICES),
    Jump(Table.FILTER, "INPUT", "", "kubernetes health check service ports", names.NODE_PORTS),
    Jump(Table.FILTER, "FORWARD", NEW, PORTALS, names.SERVICES),
    Jump(Table.FILTER, "OUTPUT", NEW, PORTALS, names.SERVICES),
    Jump(Table.FILTER, "FORWARD", "", "kubernetes forwarding rules", names.FORWARD),
    Jump(Table.FILTER, "INPUT", NEW, FIREWALL, names.PROXY_FIREWALL),
    Jump(Table.FILTER, "OUTPUT", NEW, FIREWALL, names.PROXY_FIREWALL),
    Jump(Table.FILTER, "FORWARD", NEW, FIREWALL, names.PROXY_FIREWALL),
    Jump(Table.NAT, "OUTPUT", "", PORTALS, names.SERVICES),
    Jump(Table.NAT, "PREROUTING", "", PORTALS, names.SERVICES),
    Jump(Table.NAT, "POSTROUTING", "", "kubernetes postrouting rules", names.POSTROUTING),
    Jump(Table.FILTER, "INPUT", "", "", names.LOCALHOST_FIREWALL),
    Jump(Table.FILTER, "OUTPUT", "", "", names.LOCALHOST_FIREWALL),
)
"""In the order in which each is inserted at the top of its chain: the last one ends up first."""


def jump_positions(jump: Jump, observed: Ruleset) -> list[int]:
    """Where `jump` stands in its built-in chain, however it is spelled there."""
    chain = observed.get(jump.table, {}).get(jump.source, Chain(jump.source))
    wanted = parse_rule(jump.rule)
    return [index for index, rule in enumerate(chain.rules) if jump.target in rule and parse_rule(rule) == wanted]


PRESENT: tuple[ChainKey, ...] = (
    ChainKey(Table.FILTER, names.LOCALHOST_FIREWALL),
    ChainKey(Table.MANGLE, names.CANARY),
    ChainKey(Table.FILTER, names.CANARY),
    ChainKey(Table.NAT, names.CANARY),
)
"""Chains that must exist; what is in them is not ours to say, unless they are among the chains that are written."""

STANDING_TARGETS = frozenset({names.FORWARD, names.POSTROUTING, names.LOCALHOST_FIREWALL})
"""Chains that do something whatever the services are; a kubelet jumps to the last one as well."""

DISPATCH = (
    ChainKey(Table.FILTER, names.SERVICES),
    ChainKey(Table.FILTER, names.EXTERNAL_SERVICES),
    ChainKey(Table.FILTER, names.FORWARD),
    ChainKey(Table.FILTER, names.NODE_PORTS),
    ChainKey(Table.FILTER, names.PROXY_FIREWALL),
    NAT_SERVICES,
    NAT_NODE_PORTS,
)
"""The chains through which traffic finds its service port, in the order of their chain lines."""


class SharedChains(NamedTuple):
    foundation: dict[ChainKey, Chain]
    """What per-service chains jump to or rely on: written before them."""
    dispatch: dict[ChainKey, Chain]
    """What jumps to per-service chains: written after them."""
    jumps: tuple[Jump, ...] = JUMPS
    present: tuple[ChainKey, ...] = PRESENT


def shared_chains(entries: Iterable[Entry], family: Family, settings: IptablesSettings) -> SharedChains:
    rules: dict[ChainKey, list[str]] = {key: [] for key in DISPATCH}
    for entry in entries:
        rules[entry.chain].append(entry.rule)
    jumps, present = JUMPS, PRESENT
    if settings.is_residue:
        # We write nothing into mangle, and a table costs each packet something once it exists.
        present = tuple(key for key in PRESENT if key.table is not Table.MANGLE)
        jumps = _needed_jumps({key for key, lines in rules.items() if lines})
    rules[NAT_SERVICES] += node_port_tail(family, settings)
    rules[ChainKey(Table.FILTER, names.FORWARD)] += forward_rules(settings)
    if settings.has_localhost_node_ports(family):
        rules[ChainKey(Table.FILTER, names.LOCALHOST_FIREWALL)] = [localhost_guard()]
    dispatch = {key: Chain(key.name, tuple(lines)) for key, lines in rules.items()}
    return SharedChains(foundation_chains(settings), dispatch, jumps, present)


def _needed_jumps(entered: Set[ChainKey]) -> tuple[Jump, ...]:
    """Those to chains in which something stands; `entered` are the ones with entries of service ports."""
    targets = {*entered, *((NAT_SERVICES,) if NAT_NODE_PORTS in entered else ())}
    return tuple(
        jump for jump in JUMPS if jump.target in STANDING_TARGETS or ChainKey(jump.table, jump.target) in targets
    )


def foundation_chains(settings: IptablesSettings) -> dict[ChainKey, Chain]:
    chain, mark = names.POSTROUTING, settings.mark
    fully = " --random-fully" if settings.random_fully else ""
    postrouting = (
        f"-A {chain} -m mark ! --mark {mark}/{mark} -j RETURN",
        # Cleared, lest a packet that crosses the stack again (tunnels) be masqueraded twice.
        f"-A {chain} -j MARK --xor-mark {mark}",
        f"-A {chain} {comment('kubernetes service traffic requiring SNAT')} -j MASQUERADE{fully}",
    )
    marking = (f"-A {names.MARK_MASQUERADE} -j MARK --or-mark {mark}",)
    chains = (Chain(chain, postrouting), Chain(names.MARK_MASQUERADE, marking))
    return {ChainKey(Table.NAT, each.name): each for each in chains}


def node_port_tail(family: Family, settings: IptablesSettings) -> list[str]:
    """The last rules of nat KUBE-SERVICES: what is addressed to this node may be a node port."""
    head = f"-A {names.SERVICES} {comment(NODE_PORT_TAIL)}"
    serves_loopback = settings.has_localhost_node_ports(family)
    addresses = settings.node_port_addresses.get(family)
    if addresses is not None:
        open_ones = (each for each in addresses if serves_loopback or not is_loopback(each))
        return [f"{head} -d {word(address)} -j {names.NODE_PORTS}" for address in open_ones]
    loopback = "::1/128" if family is Family.IPV6 else "127.0.0.0/8"
    match = "" if serves_loopback else f" ! -d {loopback}"
    return [f"{head} -m addrtype --dst-type LOCAL{match} -j {names.NODE_PORTS}"]


def is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def localhost_guard() -> str:
    """With route_localnet, which localhost node ports need, neighbours could reach services bound to 127.0.0.1."""
    states = "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT"
    text = comment("block incoming localnet connections")
    return f"-A {names.LOCALHOST_FIREWALL} {text} -d 127.0.0.0/8 ! -s 127.0.0.0/8 {states} -j DROP"


def forward_rules(settings: IptablesSettings) -> list[str]:
    head, mark = f"-A {names.FORWARD}", settings.mark
    # An out-of-window packet escapes the DNAT, and the peer would answer it with a reset.
    counter = f" {counts(DROPPED_AS_INVALID)}" if settings.has_counters else ""
    invalid = [] if settings.conntrack_liberal else [f"{head} -m conntrack --ctstate INVALID{counter} -j DROP"]
    marked, known = f"-m mark --mark {mark}/{mark} -j ACCEPT", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    if settings.is_residue:
        # No packet matches two of them with different verdicts, so what nearly all packets are may stand first; a
        # comment is one more match to evaluate.
        return [f"{head} {known}", *invalid, f"{head} {marked}"]
    return [
        *invalid,
        f"{head} {comment('kubernetes forwarding rules')} {marked}",
        f"{head} {comment('kubernetes forwarding conntrack rule')} {known}",
    ]
