"""A host with empty tables, fake or real, and what its rules say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbpf.clock import FakeClock
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.commands import Completed, Flavour, Run, Tool, find_tools, run_process
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.rule import Rule, parse_rule
from kbpf.datapath.iptables.ruleset import Ruleset, parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.demo.namespaces import Namespace
from kbpf.host.accounting import create_counters
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
    create_counters: Callable[[Sequence[str]], bool]

    def tool(self, family: Family = Family.IPV4) -> Tool:
        return find_tools(self.run, family)[0][self.flavour]

    def rules(self, family: Family = Family.IPV4) -> Ruleset:
        return parse_save(self.tool(family).save())

    def datapath(
        self, run: Run | None = None, create_counters: Callable[[Sequence[str]], bool] | None = None
    ) -> IptablesDatapath:
        """As a daemon that has just started."""
        return IptablesDatapath(
            SETTINGS, FakeClock(), flavour=self.flavour, create_counters=create_counters, run=run or self.run
        )


def fake_host(flavour: Flavour) -> Host:
    fake = FakeIptables()

    def create(names: Sequence[str]) -> bool:
        fake.counters.update(names)
        return True

    return Host(fake, flavour, create)


def real_host(namespace: Namespace, flavour: Flavour) -> Host:
    def create(names: Sequence[str]) -> bool:
        with namespace.entered():
            return create_counters(names)

    return Host(inside(namespace), flavour, create)


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
