"""Rules beneath eBPF: a packet that needs none of them meets as few as possible."""

from kbpf.clock import FakeClock
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.fake import FakeIptables, saved_rule
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, port, service, service_name, slice_port, table_of

WEB = service_name("web")
SCTP = table_of(
    service("web", port(80, protocol="SCTP", node_port=30080), type="NodePort"),
    endpoint_slice("web", "10.42.1.5", ports=[slice_port(8080, protocol="SCTP")]),
)
REFUSING = table_of(service("web", port(80, protocol="SCTP")))
STANDING = {"INPUT KUBE-FIREWALL", "OUTPUT KUBE-FIREWALL", "FORWARD KUBE-FORWARD", "POSTROUTING KUBE-POSTROUTING"}
TO_NODE_PORTS = {"PREROUTING KUBE-SERVICES", "OUTPUT KUBE-SERVICES"}
TO_REFUSALS = {"FORWARD KUBE-SERVICES", "OUTPUT KUBE-SERVICES"}


def make(fake: FakeIptables, *, is_residue: bool = True) -> IptablesDatapath:
    return IptablesDatapath(IptablesSettings(is_residue=is_residue), FakeClock(), run=fake)


def jumps(fake: FakeIptables) -> list[str]:
    """Built-in chain and the chain of ours, for each jump."""
    rules = (saved_rule(rule) for chains in fake.tables().values() for chain in chains.values() for rule in chain)
    words = (rule.split() for rule in rules)
    return sorted(f"{each[1]} {each[-1]}" for each in words if each[1].isalpha() and each[-1].startswith("KUBE-"))


def forward(fake: FakeIptables) -> list[str]:
    return [saved_rule(rule) for rule in fake.tables()["filter"]["KUBE-FORWARD"]]


def test_without_services_only_chains_that_do_something_are_jumped_to():
    fake = FakeIptables()
    make(fake).sync(ServiceTable(), frozenset(), full=True)
    assert jumps(fake) == sorted(STANDING)
    assert "mangle" not in fake.tables()


def test_what_most_packets_are_is_asked_first_and_nothing_is_commented():
    fake = FakeIptables()
    make(fake).sync(ServiceTable(), frozenset(), full=True)
    assert forward(fake) == [
        "-A KUBE-FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
        "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
    ]


def test_jumps_come_and_go_with_what_they_lead_to():
    fake, table = FakeIptables(), ServiceTable()
    running = make(fake)
    running.sync(table, frozenset(), full=True)
    for wanted, leading in ((SCTP, TO_NODE_PORTS), (REFUSING, TO_REFUSALS), (ServiceTable(), set())):
        report = running.sync(table, table.replace(WEB, wanted.ports_of(WEB)), full=False)
        assert not report.full
        assert set(jumps(fake)) == STANDING | leading


def test_rules_that_carried_every_service_become_a_residue_and_back():
    fake = FakeIptables()
    make(fake, is_residue=False).sync(SCTP, frozenset(), full=True)
    everywhere = jumps(fake)
    make(fake).sync(ServiceTable(), frozenset(), full=True)
    assert jumps(fake) == sorted(STANDING)
    make(fake, is_residue=False).sync(SCTP, frozenset(), full=True)
    assert jumps(fake) == everywhere


def test_another_program_that_empties_a_table_is_noticed_and_mangle_is_not_asked_for():
    fake = FakeIptables()
    running = make(fake)
    running.sync(ServiceTable(), frozenset(), full=True)
    assert running.lost() == ()
    fake.tables()["nat"].clear()
    assert running.lost() == ("IPv4 nat: our chains",)
