"""Rules as text: chains, and the inputs of iptables-restore that are made of them.

Nothing from the API reaches a rule but through `word` and `comment`, which let no quote, backslash, blank or control
character pass. Built by render and static, arranged by plan, written by commands.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kbpf.model.constant import Constant

MAX_COMMENT = 255
"""What xt_comment holds, without the final NUL."""

_WORD = re.compile(r"[A-Za-z0-9:][A-Za-z0-9./:_+-]*")
_COMMENT = re.compile(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*")


def word(text: str) -> str:
    """`text` if it can stand in a rule unquoted: a name, an address, a CIDR. Raises ValueError otherwise."""
    if not _WORD.fullmatch(text):
        raise ValueError(f"{text!a:.80} cannot stand in a rule")
    return text


def comment(text: str) -> str:
    """A comment match for printable text; blanks need the quotes. Raises ValueError when it cannot be written."""
    if len(text) > MAX_COMMENT or not _COMMENT.fullmatch(text):
        raise ValueError(f"{text!a:.80} cannot be the comment of a rule")
    return f'-m comment --comment "{text}"' if " " in text else f"-m comment --comment {text}"


class Table(Constant):
    """In the order of a restore input: filter is committed before nat, as kube-proxy does it."""

    MANGLE = "mangle"
    FILTER = "filter"
    NAT = "nat"


class Chain(NamedTuple):
    name: str
    rules: tuple[str, ...] = ()
    """Complete lines, "-A NAME …"."""


class ChainKey(NamedTuple):
    table: Table
    name: str


Ruleset = Mapping[Table, Mapping[str, Chain]]
"""What a host holds, foreign and built-in chains included."""


class TableInput(NamedTuple):
    """One table's part of a restore input; the kernel takes it whole or not at all.

    `chains` are created, or emptied if they exist, then filled; `edits` are single insertions into and deletions from
    chains that are not ours alone; `removed` chains are emptied and deleted at the end.
    """

    table: Table
    chains: tuple[Chain, ...] = ()
    edits: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Everything between the table's head line and its COMMIT."""
        for chain in self.chains:
            yield f":{chain.name} - [0:0]"
        for name in self.removed:
            yield f":{name} - [0:0]"
        for chain in self.chains:
            yield from chain.rules
        yield from self.edits
        for name in self.removed:
            yield f"-X {name}"

    @property
    def writes(self) -> int:
        """Chains and rules that are written or deleted."""
        return len(self.chains) + self.rules + len(self.edits) + len(self.removed)

    @property
    def rules(self) -> int:
        """Those in whole chains."""
        return sum([len(rules) for _, rules in self.chains])

    @property
    def is_empty(self) -> bool:
        return not (self.chains or self.edits or self.removed)


class RestoreInput(NamedTuple):
    tables: tuple[TableInput, ...]

    @property
    def text(self) -> str:
        lines: list[str] = []
        for part in self.tables:
            lines.append(f"*{part.table.value}")
            lines.extend(part.lines())
            lines.append("COMMIT")
        return "\n".join([*lines, ""])

    @property
    def writes(self) -> int:
        return sum(part.writes for part in self.tables)


def parse_save(text: str) -> dict[Table, dict[str, Chain]]:
    """What `iptables-save` printed, or a restore input: the chains with their rules as they stand. Other tables: no."""
    ruleset: dict[Table, dict[str, list[str]]] = {}
    known = {f"*{table.value}": table for table in Table}
    chains: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("-A "):
            chains.setdefault(line[3:].partition(" ")[0], []).append(line)
        elif line.startswith(":"):
            chains.setdefault(line[1:].partition(" ")[0], [])
        elif line.startswith("*"):
            chains = ruleset.setdefault(known[line], {}) if line in known else {}
    return {
        table: {name: Chain(name, tuple(rules)) for name, rules in chains.items()} for table, chains in ruleset.items()
    }
