"""The straight line: what a sync consumes, what it resolves anew, and what a failed one leaves pending."""

import pytest

from kbpf.clock import FakeClock
from kbpf.errors import MapError
from kbpf.host.conntrack import UdpEntry
from kbpf.host.fake import FakeConntrack
from kbpf.host.udp_cleanup import UdpCleanup
from kbpf.model.events import Kind, Synced
from kbpf.proxier import Proxier, Status
from kbpf.tracking.trackers import Trackers
from tests.builders import (
    NODE_NAME,
    changed,
    endpoint,
    endpoint_slice,
    gone,
    node,
    port,
    service,
    service_name,
    slice_port,
)
from tests.conntrack_entries import TrackedFlow, entry_of
from tests.logs import capture_logs
from tests.recording import RecordingDatapath

WEB, DNS = service_name("web"), service_name("dns")


class Rig:
    def __init__(self) -> None:
        self.datapath = RecordingDatapath()
        self.published: list[Status] = []
        self.nodes_seen: list[object] = []
        self.nodes_known: list[object] = []
        self.conntrack = FakeConntrack()
        self.proxier = Proxier(
            NODE_NAME,
            Trackers(NODE_NAME),
            self._make_datapath,
            UdpCleanup(self.conntrack, FakeClock()),
            self.published.append,
            node_known=self.nodes_known.append,
        )

    def _make_datapath(self, own_node: object) -> RecordingDatapath:
        self.nodes_seen.append(own_node)
        return self.datapath

    def take(self, *things: object) -> list[bool]:
        return [self.proxier.take(changed(thing)) for thing in things]  # type: ignore[arg-type]

    def lists_complete(self) -> None:
        for kind in Kind:
            self.proxier.take(Synced(kind))

    def backends(self, name: object = WEB) -> list[str]:
        return [backend.address for port in self.datapath.held[name] for backend in port.cluster]  # type: ignore[index]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_asks_for_a_sync_before_every_initial_list_is_complete(rig: Rig):
    assert rig.take(service(), endpoint_slice("web", "10.42.1.5"), node()) == [False, False, False]
    assert [rig.proxier.take(Synced(kind)) for kind in Kind] == [False, False, True]


def test_a_sync_brings_the_decided_services_to_the_datapath(rig: Rig):
    rig.take(service(), endpoint_slice("web", "10.42.1.5", "10.42.2.5"))
    rig.lists_complete()
    rig.proxier.sync()
    assert rig.backends() == ["10.42.1.5", "10.42.2.5"]
    assert rig.published[-1].services == {WEB}
    assert rig.published[-1].table.services == {WEB}


def test_the_first_sync_is_full_and_the_next_one_looks_at_what_changed_only(rig: Rig):
    rig.take(service("web"), service("dns", cluster_ips=["10.96.0.11"]))
    rig.lists_complete()
    rig.proxier.sync()
    rig.take(endpoint_slice("web", "10.42.1.5"))
    rig.proxier.sync()
    assert rig.datapath.syncs == [(frozenset({WEB, DNS}), True), (frozenset({WEB}), False)]


def test_a_failed_sync_consumes_nothing_and_the_next_one_is_full(rig: Rig):
    rig.take(service())
    rig.lists_complete()
    rig.proxier.sync()
    rig.take(endpoint_slice("web", "10.42.1.5"))
    rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        rig.proxier.sync()
    rig.proxier.sync()
    assert rig.datapath.syncs[-1] == (frozenset({WEB}), True)
    assert rig.backends() == ["10.42.1.5"]


def test_what_others_took_away_is_asked_only_while_the_kernel_should_hold_it(rig: Rig):
    rig.datapath.missing = ("IPv4 nat: our chains",)
    rig.lists_complete()
    assert rig.proxier.lost() == ()
    rig.proxier.sync()
    assert rig.proxier.lost() == ("IPv4 nat: our chains",)
    rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        rig.proxier.sync()
    assert rig.proxier.lost() == ()


def test_changes_that_arrive_after_a_failure_join_the_retry(rig: Rig):
    rig.take(service())
    rig.lists_complete()
    rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        rig.proxier.sync()
    rig.take(endpoint_slice("web", "10.42.1.5"))
    rig.proxier.sync()
    assert rig.backends() == ["10.42.1.5"]


def test_a_failed_sync_is_not_published(rig: Rig):
    rig.lists_complete()
    rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        rig.proxier.sync()
    assert rig.published == []


def test_a_deleted_service_leaves_the_datapath(rig: Rig):
    web = service()
    rig.take(web)
    rig.lists_complete()
    rig.proxier.sync()
    assert rig.proxier.take(gone(web))
    rig.proxier.sync()
    assert rig.datapath.held == {}


def test_an_update_without_content_asks_for_nothing(rig: Rig):
    rig.take(service())
    rig.lists_complete()
    rig.proxier.sync()
    assert rig.take(service(labels={"team": "a"})) == [False]


def test_a_new_zone_of_the_node_resolves_every_service_anew(rig: Rig):
    rig.take(
        node(zone="za"),
        service(),
        endpoint_slice("web", endpoint("10.42.1.5", zones=["za"]), endpoint("10.42.2.5", "n2", zones=["zb"])),
    )
    rig.lists_complete()
    rig.proxier.sync()
    assert rig.backends() == ["10.42.1.5"]
    assert rig.take(node(zone="zb")) == [True]
    rig.proxier.sync()
    assert rig.backends() == ["10.42.2.5"]


def test_the_node_of_somebody_else_is_ignored(rig: Rig):
    rig.lists_complete()
    assert rig.take(node("n2", zone="zb")) == [False]


def test_a_node_that_disappears_keeps_its_zone(rig: Rig):
    rig.take(node(zone="za"))
    rig.lists_complete()
    rig.proxier.sync()
    assert not rig.proxier.take(gone(node()))


def test_the_datapath_is_made_once_with_the_node_that_the_lists_held(rig: Rig):
    own = node(NODE_NAME, "192.168.60.11")
    rig.take(own)
    rig.lists_complete()
    rig.proxier.sync()
    rig.proxier.sync()
    assert rig.nodes_seen == [own]


def test_the_node_is_told_of_as_soon_as_it_is_known_and_before_any_sync(rig: Rig):
    own = node(NODE_NAME, "192.168.60.11")
    rig.proxier.take(Synced(Kind.SERVICE))
    rig.take(own)
    assert rig.nodes_known == []
    rig.proxier.take(Synced(Kind.NODE))
    assert (rig.nodes_known, rig.nodes_seen) == ([own], [])


def test_when_the_node_is_the_last_to_be_known_the_sync_is_at_hand(rig: Rig):
    rig.lists_complete()
    assert rig.nodes_known == []


def test_a_problem_of_an_object_is_one_log_line_and_the_others_go_on(rig: Rig):
    with capture_logs() as logs:
        rig.take(service("bad", port(65536)), service("web"), service("bad", port(65536), labels={"x": "y"}))
    assert [entry["event"] for entry in logs] == [
        "Service shop/bad: spec.ports[0].port: 65536: is not a port number (1-65535), port skipped"
    ]
    rig.lists_complete()
    rig.proxier.sync()
    assert set(rig.datapath.held) == {WEB}


def test_a_service_that_loses_a_shared_address_to_another_is_written_too(rig: Rig):
    rig.take(service("web", external_ips=["203.0.113.9"]))
    rig.lists_complete()
    rig.proxier.sync()
    rig.take(service("api", cluster_ips=["10.96.0.12"], external_ips=["203.0.113.9"]))
    rig.proxier.sync()
    assert rig.datapath.syncs[-1][0] == {service_name("api"), WEB}


def dns_flow(backend: str) -> UdpEntry:
    return entry_of(TrackedFlow("10.42.1.9", 40001, "10.96.0.11", 53, backend, 5353))


@pytest.fixture
def dns_rig(rig: Rig) -> Rig:
    """A UDP Service with one endpoint, synced, and a client's flow to it."""
    ports = (slice_port(5353, "d", "UDP"),)
    rig.take(service("dns", port(53, "d", "UDP"), cluster_ips=["10.96.0.11"]))
    rig.take(endpoint_slice("dns", "10.42.1.5", ports=ports))
    rig.lists_complete()
    rig.proxier.sync()
    rig.conntrack.entries.add(dns_flow("10.42.1.5"))
    rig.take(endpoint_slice("dns", "10.42.1.6", ports=ports))
    return rig


def test_flows_to_a_udp_backend_that_left_are_forgotten_and_the_status_counts_them(dns_rig: Rig):
    dns_rig.proxier.sync()
    assert dns_rig.conntrack.entries == set()
    assert sum(cleaned.deleted for cleaned in dns_rig.published[-1].cleaned) == 1


def test_flows_stay_until_the_datapath_has_the_new_backend(dns_rig: Rig):
    dns_rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        dns_rig.proxier.sync()
    assert dns_rig.conntrack.entries == {dns_flow("10.42.1.5")}
    dns_rig.proxier.sync()
    assert dns_rig.conntrack.entries == set()


def test_the_flows_of_a_service_that_was_deleted_in_a_failed_sync_are_forgotten_after_the_next(dns_rig: Rig):
    dns_rig.proxier.take(gone(service("dns")))
    dns_rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        dns_rig.proxier.sync()
    dns_rig.proxier.sync()
    assert dns_rig.conntrack.entries == set()


def test_a_full_sync_that_repaired_something_is_followed_by_a_clean_up_and_one_that_did_not_is_not(dns_rig: Rig):
    dns_rig.proxier.sync()
    dns_rig.conntrack.entries.add(dns_flow("10.96.0.11"))
    dns_rig.proxier.sync(full=True)
    assert dns_rig.conntrack.entries == {dns_flow("10.96.0.11")}
    dns_rig.datapath.repairs = 1
    dns_rig.proxier.sync(full=True)
    assert dns_rig.conntrack.entries == set()


def test_a_service_that_comes_with_a_failed_sync_and_goes_before_the_next_leaves_nothing(rig: Rig):
    rig.lists_complete()
    rig.proxier.sync()
    rig.take(service())
    rig.datapath.failures.append(MapError("slots: no"))
    with pytest.raises(MapError):
        rig.proxier.sync()
    rig.proxier.take(gone(service()))
    rig.proxier.sync()
    assert rig.datapath.held == {}


def test_a_node_that_the_api_does_not_know_is_not_eligible_and_with_manifests_nothing_speaks_against_it():
    assert Rig().proxier.node_is_eligible
    proxier = Proxier(
        NODE_NAME,
        Trackers(NODE_NAME),
        lambda own: RecordingDatapath(),
        UdpCleanup(FakeConntrack(), FakeClock()),
        lambda status: None,
        expects_node=True,
    )
    assert not proxier.node_is_eligible
    proxier.take(changed(node()))
    assert proxier.node_is_eligible
