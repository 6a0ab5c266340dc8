"""A host with empty tables, fake or real, and what its rules say."""

from collections.abc import Sequence
from dataclasses import dataclass

from kbpf.clock import FakeClock
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Completed, Flavour, Run, Tool, find_tools, run_process
from kbpf.datapath.iptables.rule import Rule, parse_rule
from kbpf.datapath.iptables.ruleset import Ruleset, parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.demo.namespaces import Namespace
from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector

SETTINGS = IptablesSettings(
    detectors={Family.IPV4: LocalDetector(cidr="10.244.0.0/16"), Family.IPV6: LocalDetector(cidr="fd00:10:244::/56")},
    node_ips={Family.IPV4: Address("192.168.50.11")},
)


@dataclass(frozen=True)
class Host:
    """`run` runs programs on it."""

    run: Run
    flavour: Flavour

    def tool(self, family: Family = Family.IPV4) -> Tool:
        return find_tools(self.run, family)[0][self.flavour]

    def rules(self, family: Family = Family.IPV4) -> Ruleset:
        return parse_save(self.tool(family).save())

    def datapath(self, run: Run | None = None) -> IptablesDatapath:
        """As a daemon that has just started."""
        return IptablesDatapath(SETTINGS, FakeClock(), flavour=self.flavour, run=run or self.run)


def inside(namespace: Namespace) -> Run:
    def run(argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        return run_process(["nsenter", f"--net={namespace.path}", *argv], stdin, timeout_s)

    return run


def meaning(ruleset: Ruleset) -> dict[tuple[str, str], list[Rule]]:
    """What the rules say, by chain; built-in chains without rules are left out, since tables come and go with use."""
    return {
        (table.value, name): [parse_rule(rule) for rule in chain.rules]
        for table, chains in ruleset.items()
        for name, chain in chains.items()
        if chain.rules or not name.isalpha()
    }
