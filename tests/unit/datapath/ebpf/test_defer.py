"""What is left to iptables, frontend by frontend, and what iptables is then given to render."""

import msgspec
import pytest

from kbpf.datapath.ebpf.defer import SERVED, Deferral, DeferSettings, PortKey, deferral, residue
from kbpf.datapath.ebpf.shapes import DeferReason
from kbpf.model.names import ServiceName
from kbpf.model.table import Frontend, FrontendKind, ResolvedPort
from tests.builders import endpoint, endpoint_slice, port, service, table_of

EVERYTHING = DeferSettings()


def resolved(*ports, slices=(), **spec) -> ResolvedPort:
    [found] = table_of(service("web", *ports, **spec), *slices)
    return found


def shared(**spec) -> ResolvedPort:
    """With one frontend of each kind."""
    return resolved(
        port(80, node_port=30080),
        slices=[endpoint_slice("web", "10.42.1.5")],
        type="LoadBalancer",
        external_ips=["203.0.113.9"],
        ingress=["198.51.100.7"],
        **spec,
    )


PACKETS = Deferral(packets=DeferReason.EXTERNAL)


def reasons(port: ResolvedPort, settings: DeferSettings = EVERYTHING) -> dict[FrontendKind, Deferral]:
    return {frontend.kind: deferral(port, frontend, settings) for frontend in port.frontends}


def for_everybody(reason: DeferReason) -> set[Deferral]:
    return {Deferral(reason, reason)}


def test_sockets_are_served_everywhere_and_packets_to_external_frontends_are_left_to_iptables():
    assert reasons(shared()) == {
        FrontendKind.CLUSTER_IP: SERVED,
        FrontendKind.EXTERNAL_IP: PACKETS,
        FrontendKind.LOAD_BALANCER_IP: PACKETS,
        FrontendKind.NODE_PORT: PACKETS,
    }


def test_source_ranges_defer_load_balancer_addresses_only():
    found = reasons(shared(load_balancer_source_ranges=["192.0.2.0/24"]))
    assert found[FrontendKind.LOAD_BALANCER_IP] == (DeferReason.SOURCE_RANGES, DeferReason.EXTERNAL)
    assert found[FrontendKind.LOAD_BALANCER_IP].reason is DeferReason.SOURCE_RANGES
    assert found[FrontendKind.EXTERNAL_IP] == PACKETS
    assert found[FrontendKind.CLUSTER_IP] == SERVED


def test_sctp_is_deferred_with_every_frontend():
    sctp = resolved(port(80, protocol="SCTP", node_port=30080))
    assert set(reasons(sctp).values()) == for_everybody(DeferReason.SCTP)


WEB = shared()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (DeferSettings(masquerade_all=True), DeferReason.MASQUERADE_ALL),
        (DeferSettings(spilled=frozenset({PortKey.of(WEB)})), DeferReason.SPILLED),
    ],
)
def test_some_reasons_concern_every_frontend_of_a_service_port(settings: DeferSettings, reason: DeferReason):
    assert set(reasons(WEB, settings).values()) == for_everybody(reason)


def test_a_service_that_asks_for_rules_gets_them_for_every_frontend():
    asked = msgspec.structs.replace(WEB, wants_rules=True)
    assert set(reasons(asked).values()) == for_everybody(DeferReason.OPT_OUT)


def test_that_one_service_does_not_fit_leaves_others_alone():
    other = PortKey(WEB.name._replace(service=ServiceName("shop", "other")), WEB.family)
    assert reasons(WEB, DeferSettings(spilled=frozenset({other}))) == reasons(WEB)


def test_without_an_errno_to_choose_a_service_without_endpoints_is_rejected_by_iptables():
    empty = resolved(port(80))
    assert reasons(empty, DeferSettings(can_reject=False)) == {
        FrontendKind.CLUSTER_IP: Deferral(sockets=DeferReason.NO_RETVAL)
    }
    assert reasons(empty) == {FrontendKind.CLUSTER_IP: SERVED}


def test_a_local_policy_without_local_endpoints_needs_no_errno():
    elsewhere = endpoint_slice("web", endpoint("10.42.2.5", "n2"))
    dropped = resolved(port(80), slices=[elsewhere], internal_traffic_policy="Local")
    assert reasons(dropped, DeferSettings(can_reject=False)) == {FrontendKind.CLUSTER_IP: SERVED}


def test_the_residue_is_the_service_port_with_its_deferred_frontends():
    left = residue(WEB, WEB.frontends, EVERYTHING)
    assert left is not None
    assert [frontend.kind for frontend in left.frontends] == [
        FrontendKind.EXTERNAL_IP,
        FrontendKind.LOAD_BALANCER_IP,
        FrontendKind.NODE_PORT,
    ]
    assert (left.name, left.cluster, left.external) == (WEB.name, WEB.cluster, WEB.external)


def test_a_port_that_is_served_whole_has_no_residue():
    assert residue(resolved(port(80)), (Frontend(FrontendKind.CLUSTER_IP, "10.96.0.10", 80),), EVERYTHING) is None


def test_a_frontend_that_another_service_port_owns_is_not_in_the_residue():
    owned = tuple(each for each in WEB.frontends if each.kind is FrontendKind.CLUSTER_IP)
    assert residue(WEB, owned, EVERYTHING) is None
