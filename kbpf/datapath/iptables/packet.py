"""A packet in one table: which rules it matches, where it goes from there, how it leaves. Pure.

Called by trace, hook by hook. What the kernel leaves to chance or to memory (statistic, recent) may match: the walk
follows both ways and yields every end.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kbpf.datapath.iptables.rule import Rule, parse_rule
from kbpf.datapath.iptables.ruleset import Chain, Ruleset, Table
from kbpf.model.address import Address, parse_address
from kbpf.model.detector import in_cidr
from kbpf.model.names import Protocol


class Certainty(Enum):
    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class Packet(msgspec.Struct, frozen=True):
    source: Address
    destination: Address
    port: int
    protocol: Protocol
    interface: str
    """Where it came in; empty for one that starts here."""
    local_addresses: frozenset[Address]
    """Of the host that the packet crosses, without 127.0.0.0/8 and ::1, which always count."""
    mark: int = 0
    is_translated: bool = False
    is_masqueraded: bool = False
    taken: tuple[str, ...] = ()
    """Rules that matched, with their table in front."""

    def is_local(self, address: Address) -> bool:
        return address in self.local_addresses or address.startswith("127.") or address == "::1"


class Ended(NamedTuple):
    """How a packet left a table: ACCEPT, DROP or REJECT."""

    packet: Packet
    target: str


class Frame(NamedTuple):
    """A place in a chain; the last of several is the innermost."""

    chain: Chain
    position: int = 0


Step = tuple[tuple[Frame, ...], Packet]


def walk(ruleset: Ruleset, table: Table, built_in: str, packet: Packet) -> Iterator[Ended]:
    """Every end that the packet can come to. The policy of a built-in chain is taken to be ACCEPT."""
    chains = ruleset.get(table, {})
    todo: list[Step] = [((Frame(chains.get(built_in, Chain(built_in))),), packet)]
    while todo:
        frames, packet = todo.pop()
        if not frames:
            yield Ended(packet, "ACCEPT")
            continue
        *callers, (chain, position) = frames
        if position == len(chain.rules):
            todo.append((tuple(callers), packet))
            continue
        rule = parse_rule(chain.rules[position])
        certainty = match(rule, packet)
        after = (*callers, Frame(chain, position + 1))
        if certainty is not Certainty.YES:
            todo.append((after, packet))
        if certainty is not Certainty.NO:
            taken = replace(packet, taken=(*packet.taken, f"{table.value} {chain.rules[position]}"))
            step = _follow(rule, taken, after, chains)
            if isinstance(step, Ended):
                yield step
            else:
                todo.append(step)


def _follow(rule: Rule, packet: Packet, after: tuple[Frame, ...], chains: Mapping[str, Chain]) -> Ended | Step:
    """The next place of a packet that `rule` matched, or its end in this table."""
    match rule.target:
        case "ACCEPT" | "DROP" | "REJECT":
            return Ended(packet, rule.target)
        case "RETURN":
            return after[:-1], packet
        case "MARK":
            value, mask = (int(part, 0) for part in rule.options["--set-xmark"].split("/"))
            return after, replace(packet, mark=packet.mark & ~mask ^ value)
        case "DNAT":
            return Ended(_translated(packet, rule.options["--to-destination"]), "ACCEPT")
        case "MASQUERADE":
            return Ended(replace(packet, is_masqueraded=True), "ACCEPT")
        case target if target in chains:
            return (*after, Frame(chains[target])), packet
    return after, packet  # it only counts or logs


def _translated(packet: Packet, endpoint: str) -> Packet:
    address, _, port = endpoint.rpartition(":")
    return replace(packet, destination=parse_address(address.strip("[]")), port=int(port), is_translated=True)


def match(rule: Rule, packet: Packet) -> Certainty:
    """Whether the rule applies. One that is not understood does not: it is foreign, and our rules are to be traced."""
    if not rule.is_understood:
        return Certainty.NO
    answer = Certainty.YES
    for option, value in rule.options.items():
        name = option.removeprefix("! ")
        if name in ("--probability", "--rcheck"):
            answer = Certainty.MAYBE
        elif not _matches(name, value, packet) ^ option.startswith("!"):
            return Certainty.NO
    return answer


def _matches(option: str, value: str, packet: Packet) -> bool:
    match option:
        case "-s":
            return in_cidr(packet.source, value)
        case "-d":
            return in_cidr(packet.destination, value)
        case "-i":
            prefix = value.removesuffix("+")
            return packet.interface.startswith(prefix) if value.endswith("+") else packet.interface == value
        case "-p":
            return value == packet.protocol.value.lower()
        case "--dport":
            return value == str(packet.port)
        case "--ctstate":
            states = {"NEW", "DNAT"} if packet.is_translated else {"NEW"}
            return not states.isdisjoint(value.split(","))
        case "--mark":
            wanted, mask = (int(part, 0) for part in value.split("/"))
            return packet.mark & mask == wanted
        case "--src-type" | "--dst-type":
            address = packet.source if option == "--src-type" else packet.destination
            return value == "LOCAL" and packet.is_local(address)
    return True  # a comment, or an option of the target
