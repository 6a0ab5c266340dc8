"""What a rule line means, whatever the spelling: kube-proxy's in a restore input, or iptables-save's of any version.

Two lines that do the same parse to equal Rules; plan compares with that what is wanted and what is there, trace walks
it. Options that are not known here are kept as they stand: foreign rules are never misread, only not understood.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from kbpf.model.address import host_port, parse_address

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ESCAPED = re.compile(r"\\(.)")

VALUES = {
    **dict.fromkeys(("-s", "-d", "-i", "-p", "-j", "-m"), 1),
    **dict.fromkeys(("--dport", "--ctstate", "--mark", "--mode", "--probability", "--comment"), 1),
    **dict.fromkeys(("--src-type", "--dst-type", "--name", "--seconds", "--mask", "--nfacct-name"), 1),
    **dict.fromkeys(("--to-destination", "--xor-mark", "--or-mark", "--set-xmark", "--reject-with"), 1),
    **dict.fromkeys(("--rcheck", "--reap", "--set", "--rsource", "--random-fully"), 0),
}
"""How many values follow each option that our rules use."""

MODULES = frozenset({"tcp", "udp", "sctp", "comment", "conntrack", "mark", "statistic", "recent", "addrtype", "nfacct"})
"""Matches that say nothing by themselves: their options follow."""

DEFAULTS = frozenset(
    {
        ("--reject-with", "icmp-port-unreachable"),
        ("--reject-with", "icmp6-port-unreachable"),
        ("--mask", "255.255.255.255"),
        ("--mask", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("--rsource", ""),
    }
)
"""iptables-save prints them though nobody wrote them."""

PROTOCOLS = {"6": "tcp", "17": "udp", "132": "sctp"}


class Rule(NamedTuple):
    """Options are canonical; "! -s" is an option of its own. `target` is empty for a rule that only counts."""

    chain: str
    options: dict[str, str]
    target: str

    @property
    def is_understood(self) -> bool:
        """False for a rule with a match that is not known here: whether it applies cannot be told."""
        return "-m" not in self.options and all(option.removeprefix("! ") in VALUES for option in self.options)


def parse_rule(line: str) -> Rule:
    """From "-A CHAIN …"."""
    tokens = _tokens(line)
    chain, target, options = tokens[1], "", {}
    negation, position = "", 2
    while position < len(tokens):
        option = tokens[position]
        count = VALUES.get(option)
        position += 1
        if option == "!":
            negation = "! "
            continue
        if count is None:
            count = _count_values(tokens, position)
        value = " ".join(tokens[position : position + count])
        position += count
        if option == "-j":
            target = value
        elif not (option == "-m" and value in MODULES):
            option, value = _canonical_or_as_is(option, value)
            if (option, value) not in DEFAULTS:
                options[negation + option] = value
        negation = ""
    return Rule(chain, options, target)


def _tokens(line: str) -> list[str]:
    if '"' not in line:
        return line.split()
    return [_ESCAPED.sub(r"\1", quoted) if quoted else plain for quoted, plain in _TOKEN.findall(line)]


def _count_values(tokens: list[str], position: int) -> int:
    """Everything up to the next option belongs to an option that is not known."""
    end = position
    while end < len(tokens) and not tokens[end].startswith(("-", "!")):
        end += 1
    return end - position


def _canonical_or_as_is(option: str, value: str) -> tuple[str, str]:
    try:
        return _canonical(option, value)
    except ValueError:  # a form that our rules never have, such as a range
        return option, value


def _canonical(option: str, value: str) -> tuple[str, str]:
    match option:
        case "-s" | "-d":
            return option, _network(value)
        case "-p":
            return option, PROTOCOLS.get(value, value)
        case "--mark" | "--set-xmark":
            return option, _marks(*value.split("/"))
        case "--xor-mark":
            return "--set-xmark", _marks(value, "0")
        case "--or-mark":
            return "--set-xmark", _marks(value, value)
        case "--probability":
            return option, str(round(float(value) * 0x80000000))  # what the kernel keeps of it
        case "--ctstate":
            return option, ",".join(sorted(value.split(",")))
        case "--to-destination":
            return option, _endpoint(value)
    return option, value


@lru_cache(maxsize=4096)
def _marks(value: str, mask: str = "0xffffffff") -> str:
    return f"{int(value, 0):#x}/{int(mask, 0):#x}"


def _network(text: str) -> str:
    """Without the prefix length of a host, in the one spelling of its address."""
    if ":" not in text:
        return text.removesuffix("/32")
    address, slash, length = text.partition("/")
    address = parse_address(address)
    return address if length in ("", "128") else f"{address}{slash}{length}"


def _endpoint(text: str) -> str:
    if not text.startswith("["):
        return text
    address, _, port = text[1:].rpartition("]:")
    return host_port(parse_address(address), int(port)) if port.isdigit() else text
