"""When the table of tracked flows is read, and what a failure costs."""

from collections.abc import Iterable

import pytest

from kbpf.clock import FakeClock
from kbpf.errors import HostError
from kbpf.host.conntrack import network_order
from kbpf.host.fake import FakeConntrack
from kbpf.host.udp_cleanup import UdpCleanup
from kbpf.model.address import Address, Family
from kbpf.model.sockets import ConnectedSocket
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, port, service, service_name, slice_port, table_of, trackers_of
from tests.conntrack_entries import TrackedFlow, entry_of
from tests.logs import capture_logs

DNS, WEB = service_name("dns"), service_name("web")
OBJECTS = (
    service("dns", port(53, "d", "UDP"), cluster_ips=["10.96.0.10", "fd96::10"]),
    endpoint_slice("dns", "10.42.1.5", ports=(slice_port(5353, "d", "UDP"),)),
    service("web", cluster_ips=["10.96.0.11"]),
)
STALE = entry_of(TrackedFlow("10.42.1.9", 40001, "10.96.0.10", 53, "10.42.1.99", 5353))
STALE_V6 = entry_of(TrackedFlow("fd42:1::9", 40001, "fd96::10", 53, "fd42:1::99", 5353))
ALIVE = entry_of(TrackedFlow("10.42.1.9", 40002, "10.96.0.10", 53, "10.42.1.5", 5353))


STALE_SOCKET, ALIVE_SOCKET = (ConnectedSocket(*flow[:4], netns_cookie=1, cookie=2) for flow in (STALE, ALIVE))
STRAY_SOCKET = STALE_SOCKET._replace(destination=network_order(Address("10.96.0.99")))


class FakeSockets:
    def __init__(self) -> None:
        self.held = {ALIVE_SOCKET}
        self.readings = 0
        self.failure: HostError | None = None

    def read(self) -> list[ConnectedSocket]:
        self.readings += 1
        return sorted(self.held)

    def end(self, sockets: Iterable[ConnectedSocket]) -> int:
        if self.failure:
            raise self.failure
        ended = set(sockets)
        self.held -= ended
        return len(ended)


class Rig:
    def __init__(self) -> None:
        self.conntrack = FakeConntrack({STALE, ALIVE, STALE_V6})
        self.sockets = FakeSockets()
        self.cleanup = UdpCleanup(self.conntrack, FakeClock(), self.sockets)
        self.table, self.trackers = table_of(*OBJECTS), trackers_of(*OBJECTS)

    def set_endpoints(self, *addresses: str) -> None:
        objects = (OBJECTS[0], endpoint_slice("dns", *addresses, ports=(slice_port(5353, "d", "UDP"),)))
        self.table, self.trackers = table_of(*objects), trackers_of(*objects)
        self.note(DNS)

    def note(self, *services: object) -> None:
        self.cleanup.note(services, self.table, self.trackers)  # type: ignore[arg-type]

    def delete_all(self) -> None:
        self.table, self.trackers = ServiceTable(), trackers_of()
        self.note(DNS, WEB)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_stale_flows_of_both_families_go_after_the_sync_and_not_before(rig: Rig):
    rig.note(DNS)
    assert rig.conntrack.listings == 0
    cleaned = rig.cleanup.clean(repaired=False)
    assert rig.conntrack.entries == {ALIVE}
    assert [(each.family, each.deleted) for each in cleaned] == [(Family.IPV4, 1), (Family.IPV6, 1)]


def test_a_change_of_tcp_services_alone_reads_no_table(rig: Rig):
    rig.note(WEB)
    assert rig.cleanup.clean(repaired=False) == ()
    assert rig.conntrack.listings == 0


def test_a_second_clean_up_without_a_change_reads_no_table(rig: Rig):
    rig.note(DNS)
    rig.cleanup.clean(repaired=False)
    assert rig.cleanup.clean(repaired=False) == ()
    assert rig.conntrack.listings == 2


def test_a_change_noted_before_a_failed_sync_is_cleaned_after_the_next_good_one(rig: Rig):
    rig.note(DNS)
    rig.note(WEB)
    rig.cleanup.clean(repaired=False)
    assert rig.conntrack.entries == {ALIVE}


def test_a_repair_of_the_rules_is_followed_by_a_clean_up(rig: Rig):
    rig.note(DNS)
    rig.cleanup.clean(repaired=False)
    rig.conntrack.entries.add(STALE)
    rig.cleanup.clean(repaired=True)
    assert rig.conntrack.entries == {ALIVE}


def test_without_udp_services_no_table_is_read(rig: Rig):
    rig.note(WEB)
    rig.cleanup.clean(repaired=True)
    assert rig.conntrack.listings == 0


def test_the_flows_of_a_deleted_service_go_and_then_it_costs_nothing_any_more(rig: Rig):
    rig.note(DNS)
    rig.delete_all()
    rig.cleanup.clean(repaired=False)
    assert rig.conntrack.entries == set()
    rig.cleanup.clean(repaired=True)
    assert rig.conntrack.listings == 2


def test_a_failure_is_one_line_and_the_next_sync_makes_up_for_it(rig: Rig):
    rig.sockets.held.clear()
    rig.note(DNS)
    rig.delete_all()
    rig.conntrack.failure = HostError("cannot list conntrack entries: Operation not permitted")
    with capture_logs() as logs:
        assert rig.cleanup.clean(repaired=False) == ()
        assert rig.cleanup.clean(repaired=False) == ()
    assert [entry["event"] for entry in logs] == [
        "stale UDP flows stay until the next sync: cannot list conntrack entries: Operation not permitted"
    ]
    rig.conntrack.failure = None
    rig.cleanup.clean(repaired=False)
    assert rig.conntrack.entries == set()


def test_what_was_forgotten_is_one_line_and_nothing_forgotten_is_none(rig: Rig):
    rig.conntrack.entries = {STALE, ALIVE}
    rig.note(DNS)
    with capture_logs() as logs:
        rig.cleanup.clean(repaired=False)
        rig.cleanup.clean(repaired=True)
    assert [entry["event"] for entry in logs] == ["forgot 1 stale IPv4 UDP flows in 0.0 ms"]


# -- connected sockets


def test_the_sockets_of_an_endpoint_that_left_are_ended_after_the_sync(rig: Rig):
    rig.sockets.held.add(STALE_SOCKET)
    rig.note(DNS)
    assert rig.sockets.readings == 0
    rig.cleanup.clean(repaired=False)
    assert rig.sockets.held == {ALIVE_SOCKET}


def test_a_socket_that_was_translated_for_a_service_that_nobody_knows_is_ended(rig: Rig):
    rig.sockets.held = {STRAY_SOCKET}
    rig.note(DNS)
    rig.cleanup.clean(repaired=False)
    assert not rig.sockets.held


def test_their_table_is_read_when_an_endpoint_leaves_and_not_when_one_comes(rig: Rig):
    rig.note(DNS)
    rig.cleanup.clean(repaired=False)
    rig.set_endpoints("10.42.1.5", "10.42.1.6")
    rig.cleanup.clean(repaired=False)
    assert rig.sockets.readings == 1
    rig.set_endpoints("10.42.1.6")
    rig.cleanup.clean(repaired=False)
    assert (rig.sockets.readings, rig.sockets.held) == (2, set())


def test_sockets_that_cannot_be_ended_are_one_line_and_tried_again(rig: Rig):
    rig.sockets.held.add(STALE_SOCKET)
    rig.sockets.failure = HostError("cannot end connected UDP sockets: timed out")
    rig.note(DNS)
    with capture_logs() as logs:
        rig.cleanup.clean(repaired=False)
        rig.cleanup.clean(repaired=False)
    assert [entry["event"] for entry in logs if "cannot end" in entry["event"]] == [
        "stale UDP flows stay until the next sync: cannot end connected UDP sockets: timed out"
    ]
    rig.sockets.failure = None
    rig.cleanup.clean(repaired=False)
    assert rig.sockets.held == {ALIVE_SOCKET}
