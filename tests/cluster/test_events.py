"""Events in the real API server: it takes every kind of notice, counts repeats, and being away costs none."""

from collections.abc import Iterator

import pytest

from kbpf.clock import SystemClock
from kbpf.event_writer import EventWriter
from kbpf.model.problem import Problem
from kbpf.observe import notices
from kbpf.source.api.access import Access
from kbpf.source.api.http import HttpTransport
from tests.builders import service_name
from tests.cluster.api import Tree
from tests.cluster.control_plane import ControlPlane
from tests.mirror import eventually

pytestmark = [pytest.mark.root, pytest.mark.cluster]


@pytest.fixture
def writer(control_plane: ControlPlane) -> Iterator[EventWriter]:
    transport = HttpTransport(Access(control_plane.kubeconfig(), "", SystemClock()))
    running = EventWriter(transport.write, "n1", SystemClock())
    running.start()
    yield running
    running.stop()


def events_of(control_plane: ControlPlane, reason: str, namespace: str = "default") -> list[Tree]:
    answer = control_plane.api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [event for event in answer["items"] if event["reason"] == reason]


def test_every_kind_of_notice_is_taken(control_plane: ControlPlane, writer: EventWriter) -> None:
    control_plane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    writer.emit(notices.starting("n1"))
    writer.emit(notices.fell_back("n1", "no bpffs is mounted"))
    writer.emit(notices.conntrack_read_only("n1", "net.netfilter.nf_conntrack_max: Read-only file system"))
    writer.emit(notices.address_taken("n1", "health", "0.0.0.0:10256: Address already in use"))
    writer.emit(notices.health_port_taken("n1", service_name("web"), 32100, "Address already in use"))
    found = notices.problem("n1", Problem("EndpointSlice shop/web-1", "ports[0].port", "0", "port skipped"))
    assert found
    writer.emit(found)
    for reason in ("Starting", "EbpfUnavailable", "ConntrackReadOnly", "FailedToStartProxierHealthcheck"):
        eventually(lambda reason=reason: events_of(control_plane, reason), timeout_s=30)
    for reason in ("FailedToStartServiceHealthcheck", "InvalidField"):
        eventually(lambda reason=reason: events_of(control_plane, reason, "shop"), timeout_s=30)


def test_what_is_said_again_becomes_a_series(control_plane: ControlPlane, writer: EventWriter) -> None:
    notice = notices.fell_back("n1", "said again")
    writer.emit(notice)
    writer.emit(notice, repeats=3)

    def counts() -> list[int]:
        events = events_of(control_plane, "EbpfUnavailable")
        return [each["series"]["count"] for each in events if "said again" in each["note"] and each.get("series")]

    eventually(lambda: counts() == [5], timeout_s=30)


def test_an_event_of_an_outage_arrives_after_it(control_plane: ControlPlane, writer: EventWriter) -> None:
    control_plane.kill_api_server()
    writer.emit(notices.fell_back("n1", "said during an outage"))
    control_plane.start_api_server()
    eventually(
        lambda: any("during an outage" in event["note"] for event in events_of(control_plane, "EbpfUnavailable")),
        timeout_s=60,
    )
