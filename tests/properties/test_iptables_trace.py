"""The rules say what the reference model says, however they are spelled."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbpf.clock import FakeClock
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.ruleset import Ruleset, parse_save
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.datapath.iptables.trace import TraceNode, trace
from kbpf.model.address import Family
from kbpf.model.flow import Action, Flow, Verdict
from kbpf.policy.reference import ReferenceNode, expected_verdict
from tests.properties.tables import World, places, worlds


def iptables_settings(world: World) -> IptablesSettings:
    return IptablesSettings(
        masquerade_all=world.masquerade_all,
        detectors={world.family: world.detector} if world.detector else {},
        node_ips={world.family: places(world.family).node},
        node_port_addresses=({} if world.node_port_addresses is None else {world.family: world.node_port_addresses}),
        localhost_node_ports=world.localhost_node_ports,
    )


def reference_node(world: World) -> ReferenceNode:
    """Where node ports are open, in the terms of the reference model."""
    where = places(world.family)
    opened = set(world.local_addresses if world.node_port_addresses is None else world.node_port_addresses)
    if not (world.localhost_node_ports and world.family is Family.IPV4):
        opened.discard(where.loopback)
    return ReferenceNode(
        local_addresses=world.local_addresses,
        node_port_addresses=frozenset(opened),
        node_ips=frozenset({where.node}),
        detectors={world.family: world.detector} if world.detector else {},
        masquerade_all=world.masquerade_all,
    )


def observable(verdict: Verdict, flow: Flow) -> tuple[Action, set[tuple[str, int, bool]]]:
    """What a packet can show of a verdict: rules do not know which backends are on this node."""
    backends = {(each.address, each.port, verdict.is_masqueraded(flow, each)) for each in verdict.backends}
    return verdict.action, backends


def verdict_of_rules(ruleset: Ruleset, world: World) -> tuple[Action, set[tuple[str, int, bool]]]:
    verdict = trace(ruleset, world.flow, TraceNode(world.local_addresses)).verdict
    return observable(verdict, world.flow)


@settings(max_examples=400, deadline=None)
@given(worlds(), st.booleans())
def test_the_written_rules_give_the_verdict_of_the_reference_model(world: World, is_residue: bool):
    run = FakeIptables()
    written_by = replace(iptables_settings(world), is_residue=is_residue)
    datapath = IptablesDatapath(written_by, FakeClock(), run=run)
    datapath.sync(world.table, frozenset(), full=True)
    name = "iptables-nft-save" if world.family is Family.IPV4 else "ip6tables-nft-save"
    saved = parse_save(run([name], "", 1).stdout)
    expected = observable(expected_verdict(world.table, world.flow, reference_node(world)), world.flow)
    assert verdict_of_rules(saved, world) == expected
