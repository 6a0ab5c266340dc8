"""iptables without a kernel: the same programs, the same refusals, the same output, behind the seam `Run`.

It takes the argument lists and restore inputs that the real ones take, refuses what they refuse, commits a table whole
or not at all, and prints rules as iptables-save does, not as they were written. Contract tests hold it to the real one.
"""

import re
from collections.abc import Callable, Sequence

from kbpf.datapath.iptables.commands import STATUS_NOT_FOUND, Completed, Flavour, Run
from kbpf.datapath.iptables.rule import Rule, parse_rule
from kbpf.model.address import Family, family_of

Chains = dict[str, list[Rule]]

BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
}
TARGETS = {
    "filter": {"ACCEPT", "DROP", "RETURN", "REJECT", "MARK"},
    "nat": {"ACCEPT", "DROP", "RETURN", "MARK", "DNAT", "MASQUERADE"},
    "mangle": {"ACCEPT", "DROP", "RETURN", "MARK"},
}
MODULE_OF = {
    **dict.fromkeys(("--ctstate",), "conntrack"),
    **dict.fromkeys(("--mark",), "mark"),
    **dict.fromkeys(("--comment",), "comment"),
    **dict.fromkeys(("--mode", "--probability"), "statistic"),
    **dict.fromkeys(("--src-type", "--dst-type"), "addrtype"),
    **dict.fromkeys(("--nfacct-name",), "nfacct"),
    **dict.fromkeys(("--rcheck", "--set", "--seconds", "--reap", "--name"), "recent"),
}
HEAD_OPTIONS = ("-s", "-d", "-i", "-p")
TARGET_OPTIONS = ("--to-destination", "--set-xmark", "--random-fully", "--reject-with")
MAX_CHAIN_NAME = 28

_PROGRAM = re.compile(r"(ip6?tables)(-nft|-legacy)?(-save|-restore)?")


class Refused(Exception):
    """What a program answers instead of doing it."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class FakeIptables:
    """The host's rule sets, one for each family and flavour. An instance is a `Run`."""

    def __init__(
        self, *, version: str = "1.8.9", default: Flavour = Flavour.NFT, missing: Sequence[str] = (), no_nat: str = ""
    ) -> None:
        """`missing` are programs that are not installed; `no_nat` names a family whose table nat does not exist."""
        self.version = version
        self.default = default
        self.missing = missing
        self.no_nat = no_nat
        self.calls: list[tuple[str, ...]] = []
        self.counters: set[str] = set()
        """The kernel's named counters (nfacct)."""
        self._tables: dict[tuple[Family, Flavour], dict[str, Chains]] = {}

    def __call__(self, argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        self.calls.append(tuple(argv))
        parts = _PROGRAM.fullmatch(argv[0])
        if parts is None or argv[0] in self.missing:
            return Completed(STATUS_NOT_FOUND, "", "no such program")
        family = Family.IPV4 if parts[1] == "iptables" else Family.IPV6
        flavour = Flavour(parts[2].removeprefix("-")) if parts[2] else self.default
        try:
            return Completed(0, self._run(family, flavour, parts[3], list(argv[1:]), stdin), "")
        except Refused as refusal:
            return Completed(refusal.status, "", f"{argv[0]}: {refusal}")

    def tables(self, family: Family = Family.IPV4, flavour: Flavour = Flavour.NFT) -> dict[str, Chains]:
        """For tests that play another program: change it at will."""
        return self._tables.setdefault((family, flavour), {})

    def _run(self, family: Family, flavour: Flavour, suffix: str | None, arguments: list[str], stdin: str) -> str:
        if arguments == ["--version"]:
            return f"iptables v{self.version} ({'nf_tables' if flavour is Flavour.NFT else 'legacy'})\n"
        tables = self.tables(family, flavour)
        if suffix == "-save" and not arguments:
            return "".join(_save(name, chains) for name, chains in tables.items())
        if suffix == "-restore" and arguments == ["-w", "5", "--noflush", "--counters"]:
            Restore(tables, flavour, self.counters).run(stdin)
            return ""
        if suffix is None and arguments[:3] == ["-w", "5", "-S"] and arguments[4:5] == ["-t"]:
            return self._list(family, tables, arguments[3], arguments[5])
        raise Refused(2, f"unknown arguments {arguments}")

    def _list(self, family: Family, tables: dict[str, Chains], chain: str, table: str) -> str:
        if table == "nat" and family.value == self.no_nat:
            raise Refused(3, "can't initialize table `nat': Table does not exist (do you need to insmod?)")
        chains = tables.get(table) or _empty(table)
        if chain not in chains:
            raise Refused(1, "No chain/target/match by that name.")
        return "".join(f"{saved_rule(rule)}\n" for rule in chains[chain])


class Restore:
    """One run of iptables-restore --noflush."""

    def __init__(self, tables: dict[str, Chains], flavour: Flavour, counters: set[str]) -> None:
        self.tables = tables
        self.flavour = flavour
        self.counters = counters
        self.table = ""
        self.chains: Chains = {}

    def run(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            try:
                self._take(line)
            except Refused as refusal:
                raise Refused(refusal.status, f"line {number} failed: {refusal}") from refusal
        if self.table:
            raise Refused(1, f"COMMIT expected at line {len(text.splitlines()) + 1}")

    def _take(self, line: str) -> None:
        if line.startswith("*"):
            self._begin(line[1:])
        elif not self.table:
            raise Refused(2, f"unknown input {line!a}")
        elif line == "COMMIT":
            self._commit()
        elif line.startswith(":"):
            self._declare(line[1:].split(" ")[0])
        elif line.startswith("-X "):
            self._delete_chain(line[3:])
        else:
            self._edit(line)

    def _begin(self, table: str) -> None:
        if table not in BUILT_IN:
            raise Refused(3, f"can't initialize table `{table}'")
        self.table = table
        self.chains = {name: list(rules) for name, rules in (self.tables.get(table) or _empty(table)).items()}

    def _commit(self) -> None:
        self.tables[self.table] = self.chains
        self.table = ""

    def _declare(self, name: str) -> None:
        if len(name) > MAX_CHAIN_NAME:
            raise Refused(2, f"chain name `{name}' too long")
        self.chains[name] = []

    def _delete_chain(self, name: str) -> None:
        if name not in self.chains or name in BUILT_IN[self.table]:
            raise Refused(1, "No chain/target/match by that name.")
        if self.chains[name]:
            raise Refused(1, "Directory not empty")
        if any(rule.target == name for rules in self.chains.values() for rule in rules):
            raise Refused(1, "Too many links")
        del self.chains[name]

    def _edit(self, line: str) -> None:
        operation, _, rest = line.partition(" ")
        chain, _, arguments = rest.partition(" ")
        if chain not in self.chains or operation not in ("-A", "-I", "-D"):
            raise Refused(2, f"no chain by the name {chain!a}, or no operation {operation!a}")
        if operation == "-I":
            arguments = arguments.removeprefix("1 ")
        rule = parse_rule(f"-A {chain} {arguments}")
        self._check(rule)
        rules = self.chains[chain]
        if operation == "-A":
            rules.append(rule)
        elif operation == "-I":
            rules.insert(0, rule)
        elif rule in rules:
            rules.remove(rule)
        else:
            raise Refused(1, "Bad rule (does a matching rule exist in that chain?).")

    def _check(self, rule: Rule) -> None:
        if not rule.is_understood:
            raise Refused(2, f"unknown option or match in {saved_rule(rule)!a}")
        if rule.target and rule.target not in TARGETS[self.table] and rule.target not in self.chains:
            raise Refused(2, f"Chain '{rule.target}' does not exist")
        if "--dport" in rule.options and rule.options.get("-p") not in ("tcp", "udp", "sctp"):
            raise Refused(2, 'unknown option "--dport"')
        if len(rule.options.get("--comment", "")) > 255 or len(rule.options.get("-i", "").removesuffix("+")) > 15:
            raise Refused(2, "comment or interface name too long")
        if rule.options.get("--nfacct-name", "") not in {"", *self.counters}:
            raise Refused(4, "RULE_APPEND failed (No such file or directory)")
        if self.flavour is Flavour.NFT and rule.options.get("! -s", "").endswith("/0"):
            raise Refused(4, "RULE_APPEND failed (Invalid argument)")


def _empty(table: str) -> Chains:
    return {name: [] for name in BUILT_IN[table]}


def _save(table: str, chains: Chains) -> str:
    """The table as iptables-save prints it: built-in chains first, the others sorted."""
    built_in = BUILT_IN[table]
    ordered = [*built_in, *sorted(chains.keys() - set(built_in))]
    heads = [f":{name} {'ACCEPT' if name in built_in else '-'} [0:0]" for name in ordered]
    rules = [saved_rule(rule) for name in ordered for rule in chains[name]]
    return "\n".join(["# Generated by a fake", f"*{table}", *heads, *rules, "COMMIT", ""])


def saved_rule(rule: Rule) -> str:
    """The rule in iptables-save's spelling."""
    heads: list[str] = []
    matches: dict[str, list[str]] = {}
    targets: list[str] = []
    protocol = rule.options.get("-p", "")
    for option, value in rule.options.items():
        name = option.removeprefix("! ")
        words = option if not value else f"{option} {_saved_value(name, value, protocol)}"
        if name in HEAD_OPTIONS:
            heads.append(words)
        elif name in TARGET_OPTIONS:
            targets.append(words)
        else:
            matches.setdefault(MODULE_OF.get(name, protocol), []).append(words)
    if "recent" in matches:
        matches["recent"].append("--mask 255.255.255.255 --rsource")
    if rule.target == "REJECT":
        targets.append("--reject-with icmp-port-unreachable")
    heads.sort(key=lambda words: HEAD_OPTIONS.index(words.removeprefix("! ").split(" ")[0]))
    parts = [f"-A {rule.chain}", *heads]
    parts += [f"-m {module} {' '.join(words)}" for module, words in matches.items()]
    return " ".join([*parts, *([f"-j {rule.target}"] if rule.target else []), *targets])


def _saved_value(option: str, value: str, protocol: str) -> str:
    if option in ("-s", "-d") and "/" not in value:
        return f"{value}/{family_of(value).bits}"
    if option == "--comment":
        escaped = re.sub(r'(["\\])', r"\\\1", value)
        return f'"{escaped}"' if re.search(r"[^\w-]", value) else value
    if option == "--probability":
        return f"{int(value) / 0x80000000:.11f}"
    return value


class FaultyRun:
    """Another `Run` that fails at the calls of its choice: `fails(number, argv)`, counted from 1.

    `late` fails after the work was done, as a program that is killed before it reports.
    """

    def __init__(
        self, run: Run, fails: Callable[[int, Sequence[str]], bool], *, answer: Completed, late: bool = False
    ) -> None:
        self._run = run
        self._fails = fails
        self._answer = answer
        self._late = late
        self.count = 0

    def __call__(self, argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        self.count += 1
        fails = self._fails(self.count, argv)
        if fails and not self._late:
            return self._answer
        done = self._run(argv, stdin, timeout_s)
        return self._answer if fails else done
