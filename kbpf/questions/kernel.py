"""What the kernel of this node holds, by both datapaths, read anew; with or without a daemon.

The commands that ask build on it. Rows and rules are read one after the other, so a sync in between may show halfway.
"""

import os
from collections.abc import Iterable, Mapping

import msgspec

from kbpf.composition import FLAVOURS
from kbpf.config import Config
from kbpf.datapath.ebpf import found as programs
from kbpf.datapath.ebpf import reading as rows_reading
from kbpf.datapath.ebpf.found import Attachment, Found
from kbpf.datapath.iptables import names
from kbpf.datapath.iptables import reading as rules_reading
from kbpf.datapath.iptables.commands import run_process
from kbpf.datapath.iptables.host import choose_tools
from kbpf.datapath.iptables.removal import is_ours
from kbpf.datapath.iptables.ruleset import Ruleset, Table, parse_save
from kbpf.errors import KbpfError
from kbpf.host.clsact import ClsactFilters
from kbpf.model.address import Family
from kbpf.model.held import HeldFrontend
from kbpf.model.table import FrontendKey, FrontendKind

SPILLED = "spilled"
_KINDS = tuple(FrontendKind)


class Kernel(msgspec.Struct, frozen=True):
    found: Found | None = None
    attachments: tuple[Attachment, ...] = ()
    rulesets: Mapping[Family, Ruleset] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What could not be read, and why."""

    @property
    def has_programs(self) -> bool:
        """Do they carry Services? Where iptables took over, packet programs may stay for the connections they began."""
        return any(each.program_id is not None and not each.is_of_packets for each in self.attachments)

    @property
    def has_rules(self) -> bool:
        return any(names.SERVICES in rules.get(Table.NAT, {}) for rules in self.rulesets.values())

    @property
    def datapath(self) -> str:
        """ "ebpf", "iptables" or "none": what traffic meets."""
        if self.has_programs:
            return "ebpf"
        return "iptables" if self.has_rules else "none"

    @property
    def rule_counts(self) -> dict[str, int]:
        """Rules in our chains, such as "IPv4 nat": 12; what has none is left out."""
        counts = {
            f"{family.value} {table.value}": sum(len(chains[name].rules) for name in chains if is_ours(table, name))
            for family, rules in self.rulesets.items()
            for table, chains in rules.items()
        }
        return {place: count for place, count in counts.items() if count}

    @property
    def frontends(self) -> tuple[HeldFrontend, ...]:
        rows = rows_reading.frontends(self.found.rows) if self.found and self.has_programs else ()
        rules = (each for family, ruleset in self.rulesets.items() for each in rules_reading.frontends(ruleset, family))
        return merged(rows, rules, rules_alone=not self.has_programs)


def require_root() -> None:
    """Or everything would look as if nothing were there. Raises KbpfError."""
    if os.geteuid() != 0:
        raise KbpfError("reading the kernel's maps and rules needs root; try sudo")


def read_kernel(config: Config) -> Kernel:
    """Raises KbpfError without the right to read."""
    require_root()
    notes = [f"{folder} belongs to another version of kbpf" for folder in programs.other_versions(config.bpffs_root)]
    found, attachments = None, tuple[Attachment, ...]()
    try:
        found = programs.read(config.bpffs_root)
        attachments = programs.attachments(config.bpffs_root, config.cgroup_root, ClsactFilters())
    except (KbpfError, OSError) as error:
        notes.append(f"eBPF cannot be read: {error}")
    rulesets: dict[Family, Ruleset] = {}
    try:
        tools = choose_tools(run_process, FLAVOURS[config.iptables_backend], tuple(Family)).tools
        rulesets = {family: parse_save(tool.save()) for family, tool in tools.items()}
    except KbpfError as error:
        notes.append(f"rules cannot be read: {error}")
    return Kernel(found, attachments, rulesets, tuple(notes))


def merged(
    rows: Iterable[HeldFrontend], rules: Iterable[HeldFrontend], *, rules_alone: bool
) -> tuple[HeldFrontend, ...]:
    """One entry for each frontend, sorted by Service.

    What the maps do not speak of although programs are in force did not fit them, not even to say so.
    """
    held: dict[FrontendKey, HeldFrontend] = {each.key: each for each in rows}
    for rule in rules:
        row = held.get(rule.key)
        if row is None:
            held[rule.key] = rule if rules_alone else rule._replace(reason=SPILLED)
        else:
            held[rule.key] = row._replace(
                service=row.service or rule.service,
                cluster=row.cluster or rule.cluster,
                local=row.local or rule.local,
                by_rules=True,
            )
    return tuple(sorted(held.values(), key=_order))


def _order(held: HeldFrontend) -> tuple[str | int, ...]:
    family, address, port, protocol = held.key
    return held.service, family.value, _KINDS.index(held.kind), address or "", port, protocol.value
