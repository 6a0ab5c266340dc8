"""Each way in which a call leaves a hook, on rows written by hand as text."""

import pytest

from kbpf.datapath.ebpf import text
from kbpf.datapath.ebpf.shapes import DeferReason, Reason
from kbpf.datapath.ebpf.trace import Trace, trace
from kbpf.model.flow import DROP, PASS, REJECT, Action, Origin, Verdict
from kbpf.model.names import Protocol
from kbpf.model.table import Backend
from tests.builders import flow

POD = "10.42.1.9"


def frontend(address: str, service_id: int, **fields: object) -> str:
    told: dict[str, object] = {
        "kind": "CLUSTER_IP",
        "service_id": service_id,
        "flags": 0,
        "defer_reason": "NONE",
        "internal_view": "CLUSTER",
        "internal_verdict": "REJECT",
        "external_view": "CLUSTER",
        "external_verdict": "REJECT",
    }
    value = " ".join(f"{name}={content}" for name, content in (told | fields).items())
    return f"frontends address={address} port=80 protocol=TCP -> {value}\n"


PLACES = {7: "10.42.1.7", 8: "10.42.2.8", 9: "[fd42::9]"}


def slot(service_id: int, view: str, position: int, backend_id: int, generation: int = 3) -> str:
    key = f"service_id={service_id} generation={generation} view={view} position={position}"
    return f"slots {key} -> backend_id={backend_id} backend={PLACES[backend_id]}:8080/TCP\n"


MAPS = (
    frontend("10.96.0.1", 1)
    + frontend("10.96.0.2", 1, internal_view="LOCAL")
    + frontend("10.96.0.3", 2)
    + frontend("10.96.0.4", 2, internal_verdict="DROP")
    + frontend("10.96.0.5", 0, flags="DEFER_SOCKETS", defer_reason="SPILLED")
    + frontend("10.96.0.6", 99)
    + frontend("0.0.0.0", 1, kind="NODE_PORT")
    + frontend("fd96::1", 3)
    + "services id=1 -> generation=3 n_cluster=2 n_local=1 affinity_timeout_s=0\n"
    + "services id=2 -> generation=3 n_cluster=0 n_local=0 affinity_timeout_s=0\n"
    + "services id=3 -> generation=3 n_cluster=2 n_local=0 affinity_timeout_s=0\n"
    + slot(1, "CLUSTER", 0, 7)
    + slot(1, "CLUSTER", 1, 8)
    + slot(1, "LOCAL", 0, 7)
    + slot(1, "CLUSTER", 0, 9, generation=2)
    + slot(3, "CLUSTER", 0, 9)
    + "backends id=7 -> address=10.42.1.7 port=8080 protocol=TCP\n"
    + "backends id=8 -> address=10.42.2.8 port=8080 protocol=TCP\n"
    + "backends id=9 -> address=fd42::9 port=8080 protocol=TCP\n"
    + "local_addr address=127.0.0.1 -> flags=NODE_PORT|LOOPBACK\n"
    + "local_addr address=192.168.1.1 -> flags=NODE_PORT|PRIMARY\n"
    + "local_addr address=192.168.9.9 -> flags=0\n"
)
ROWS = text.parse(MAPS)
SEVEN, EIGHT = Backend("10.42.1.7", 8080), Backend("10.42.2.8", 8080)
CHOSEN = Trace(Verdict(Action.FORWARD, frozenset({SEVEN, EIGHT})), Reason.CHOSEN)


def call(destination: str, origin: Origin = Origin.POD, **where: object) -> Trace:
    return trace(ROWS, flow(origin, POD, destination, **where))


def test_a_cluster_ip_leads_to_the_backends_of_the_current_generation():
    assert call("10.96.0.1") == CHOSEN


def test_the_local_view_leads_to_local_backends_only():
    assert call("10.96.0.2") == Trace(Verdict(Action.FORWARD, frozenset({SEVEN})), Reason.CHOSEN)


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        ("10.96.0.3", Trace(REJECT, Reason.REJECTED)),
        ("10.96.0.4", Trace(DROP, Reason.DROP_PASSED)),
        ("10.96.0.5", Trace(PASS, Reason.DEFERRED, DeferReason.SPILLED)),
        ("10.96.0.6", Trace(PASS, Reason.NO_SERVICE)),
        ("10.96.0.77", Trace(PASS, Reason.NOT_A_FRONTEND)),
        ("fd96::1", Trace(PASS, Reason.NO_BACKEND)),
    ],
)
def test_other_calls_say_why_they_leave(destination: str, expected: Trace):
    assert call(destination) == expected


def test_another_port_or_protocol_is_no_frontend():
    assert call("10.96.0.1", number=81).reason is Reason.NOT_A_FRONTEND
    assert call("10.96.0.1", protocol=Protocol.UDP).reason is Reason.NOT_A_FRONTEND
    assert call("10.96.0.1", protocol=Protocol.SCTP) == Trace(PASS, Reason.OTHER_PROTOCOL)


OUTSIDER = "198.51.100.9"
LOCAL_POLICY = {"external_view": "LOCAL", "external_verdict": "DROP"}


def packet(destination: str, *more: str, source: str = OUTSIDER) -> Trace:
    rows = text.parse(MAPS + "".join(more))
    return trace(rows, flow(Origin.OUTSIDE, source, destination))


def forwarded(*backends: Backend, masquerade: bool) -> Trace:
    return Trace(Verdict(Action.FORWARD, frozenset(backends), masquerade), Reason.CHOSEN)


def test_a_packet_from_elsewhere_to_an_external_frontend_is_masqueraded_unless_the_policy_is_local():
    cluster = frontend("203.0.113.9", 1, kind="EXTERNAL_IP")
    local = frontend("203.0.113.9", 1, kind="EXTERNAL_IP", **LOCAL_POLICY)
    assert packet("203.0.113.9", cluster) == forwarded(SEVEN, EIGHT, masquerade=True)
    assert packet("203.0.113.9", local) == forwarded(SEVEN, masquerade=False)
    assert packet("192.168.1.1") == forwarded(SEVEN, EIGHT, masquerade=True)


def test_a_pod_elsewhere_is_inside():
    local = frontend("203.0.113.9", 1, kind="EXTERNAL_IP", **LOCAL_POLICY)
    pods = "source_ranges prefix_length=144 service_id=0 address=10.42.0.0 -> service_id=0\n"
    assert packet("203.0.113.9", local, pods, source=POD) == forwarded(SEVEN, EIGHT, masquerade=False)


def test_a_client_of_a_cluster_ip_is_masqueraded_where_pods_can_be_told_from_others():
    detects = (
        "config number=0 -> host_netns_cookie=1 next_service_id=1 next_backend_id=1 node_address4=:: node_address6=::"
        " flags=DETECTS_PODS4 masquerade_mark=1 udp_timeout_s=1 udp_stream_timeout_s=1\n"
    )
    assert packet("10.96.0.1") == forwarded(SEVEN, EIGHT, masquerade=False)
    assert packet("10.96.0.1", detects) == forwarded(SEVEN, EIGHT, masquerade=True)


def test_a_packet_that_finds_no_backend_is_dropped_or_refused():
    assert packet("203.0.113.9", frontend("203.0.113.9", 2, kind="EXTERNAL_IP")) == Trace(REJECT, Reason.REJECTED)
    local = frontend("203.0.113.9", 2, kind="EXTERNAL_IP", **LOCAL_POLICY)
    assert packet("203.0.113.9", local) == Trace(DROP, Reason.DROPPED)


def test_source_ranges_keep_packets_of_others_out():
    guarded = frontend("203.0.113.9", 1, kind="LOAD_BALANCER_IP", flags="SOURCE_RANGES")
    ranges = "source_ranges prefix_length=136 service_id=1 address=198.0.0.0 -> service_id=1\n"
    assert packet("203.0.113.9", guarded) == Trace(DROP, Reason.SOURCE_RANGE)
    assert packet("203.0.113.9", guarded, ranges) == forwarded(SEVEN, EIGHT, masquerade=True)
    assert packet("203.0.113.9", guarded, ranges, source="199.0.0.1") == Trace(DROP, Reason.SOURCE_RANGE)


def test_a_frontend_may_be_left_to_iptables_for_packets_alone():
    deferred = frontend("203.0.113.9", 1, kind="EXTERNAL_IP", flags="DEFER_PACKETS", defer_reason="EXTERNAL")
    assert packet("203.0.113.9", deferred) == Trace(PASS, Reason.DEFERRED, DeferReason.EXTERNAL)
    rows = text.parse(MAPS + deferred)
    assert trace(rows, flow(Origin.POD, POD, "203.0.113.9")) == CHOSEN


def test_a_cluster_ip_on_a_device_of_this_node_is_left_alone():
    rows = text.parse(MAPS + "local_addr address=10.96.0.1 -> flags=0\n")
    assert trace(rows, flow(Origin.POD, POD, "10.96.0.1")) == Trace(PASS, Reason.LOCAL_ADDRESS)


def test_node_ports_are_open_on_flagged_addresses_and_on_loopback_for_the_node_itself():
    assert call("192.168.1.1") == CHOSEN
    assert call("192.168.9.9").reason is Reason.NOT_A_FRONTEND
    assert call("127.0.0.5", Origin.HOST) == CHOSEN
    assert call("127.0.0.5").reason is Reason.NOT_A_FRONTEND


def test_a_node_port_without_backends_is_refused_on_every_local_address():
    rows = text.parse(
        MAPS.replace(
            "address=0.0.0.0 port=80 protocol=TCP -> kind=NODE_PORT service_id=1",
            "address=0.0.0.0 port=80 protocol=TCP -> kind=NODE_PORT service_id=2",
        )
    )
    assert trace(rows, flow(Origin.POD, POD, "192.168.9.9")) == Trace(REJECT, Reason.REJECTED)


def test_an_external_address_without_endpoints_is_refused_to_pods_and_left_alone_for_the_node():
    rows = text.parse(MAPS + frontend("203.0.113.9", 2, kind="EXTERNAL_IP"))
    assert trace(rows, flow(Origin.POD, POD, "203.0.113.9")) == Trace(REJECT, Reason.REJECTED)
    assert trace(rows, flow(Origin.HOST, POD, "203.0.113.9")) == Trace(PASS, Reason.REJECT_PASSED)


def test_a_value_that_belongs_to_another_key_is_a_miss():
    rows = text.parse(MAPS.replace("position=1 -> ", "position=1 -> service_id=5 "))
    assert trace(rows, flow(Origin.POD, POD, "10.96.0.1")) == Trace(PASS, Reason.NO_BACKEND)
