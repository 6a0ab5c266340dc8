"""The trackers: events in, dirty Services out, nothing lost by a failed sync."""

import pytest

from kbpf.model.address import Family
from kbpf.model.endpoint import EndpointsKey
from kbpf.model.events import ServiceChanged, SliceChanged
from kbpf.model.names import Protocol, ServiceName, SliceName
from kbpf.model.objects import SERVICE_PROXY_NAME_LABEL, EndpointSlice, ObjectMeta, Service
from kbpf.tracking.trackers import Trackers
from tests.builders import changed, draining, endpoint_slice, gone, port, service, service_name, trackers_of

WEB, API = service_name("web"), service_name("api")
HTTP = EndpointsKey(Family.IPV4, "", Protocol.TCP)


def take(trackers: Trackers, *things: Service | EndpointSlice) -> list[bool]:
    return [trackers.update(changed(thing))[0] for thing in things]  # type: ignore[arg-type]


def remove(trackers: Trackers, *things: Service | EndpointSlice) -> list[bool]:
    return [trackers.update(gone(thing))[0] for thing in things]  # type: ignore[arg-type]


def synced(*things: Service | EndpointSlice) -> Trackers:
    trackers = trackers_of(*things)
    trackers.commit(trackers.checkout())
    return trackers


def dirty(trackers: Trackers) -> frozenset[ServiceName]:
    return trackers.checkout().dirty


def addresses(trackers: Trackers, name: ServiceName = WEB) -> list[str]:
    return [each.address for each in trackers.endpoints(name).get(HTTP, ())]


# -- what is dirty ---------------------------------------------------------------------------------------------------


def test_a_service_and_its_slices_make_the_service_dirty():
    for thing in (service("web"), endpoint_slice("web", "10.42.1.5")):
        assert dirty(trackers_of(thing)) == {WEB}


def test_a_committed_change_is_dirty_no_more():
    trackers = synced(service("web"), endpoint_slice("web", "10.42.1.5"))
    assert dirty(trackers) == frozenset()
    assert not trackers.has_pending


def test_a_resync_of_the_same_objects_is_no_change():
    things = (service("web"), endpoint_slice("web", "10.42.1.5"))
    trackers = synced(*things)
    assert take(trackers, *things) == [False, False]
    assert dirty(trackers) == frozenset()


def test_annotations_and_versions_are_no_change():
    trackers = synced(service("web"))
    made = service("web")
    other = Service(ObjectMeta("web", "shop", "uid", "77", annotations={"leader": "me"}), made.spec, made.status)
    assert take(trackers, other) == [False]


def test_there_and_back_is_no_change():
    trackers = synced(service("web"), endpoint_slice("web", "10.42.1.5"))
    assert take(trackers, endpoint_slice("web", draining("10.42.1.5"))) == [True]
    assert take(trackers, endpoint_slice("web", "10.42.1.5")) == [False]
    assert dirty(trackers) == frozenset()


def test_a_slice_that_moves_to_another_service_makes_both_dirty():
    trackers = synced(service("web"), service("api"), endpoint_slice("web", "10.42.1.5", name="s"))
    take(trackers, endpoint_slice("api", "10.42.1.5", name="s"))
    assert dirty(trackers) == {WEB, API}
    assert (addresses(trackers, WEB), addresses(trackers, API)) == ([], ["10.42.1.5"])


def test_a_slice_whose_label_goes_makes_its_service_dirty():
    trackers = synced(service("web"), endpoint_slice("web", "10.42.1.5", name="s"))
    take(trackers, endpoint_slice(None, "10.42.1.5", name="s"))
    assert dirty(trackers) == {WEB}
    assert addresses(trackers) == []


def test_a_slice_never_feeds_a_service_of_another_namespace():
    trackers = trackers_of(service("web"), endpoint_slice("web", "10.42.1.5", namespace="evil"))
    assert addresses(trackers) == []
    assert addresses(trackers, ServiceName("evil", "web")) == ["10.42.1.5"]


def test_state_is_kept_by_slice_so_that_repacking_loses_nothing():
    trackers = synced(service("web"), endpoint_slice("web", "10.42.1.5", name="a"))
    take(trackers, endpoint_slice("web", "10.42.1.5", name="b"))
    remove(trackers, endpoint_slice("web", name="a"))
    assert addresses(trackers) == ["10.42.1.5"]
    remove(trackers, endpoint_slice("web", name="b"))
    assert addresses(trackers) == []
    assert trackers.endpoints(WEB) == {}


# -- Services come and go --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service_first", [True, False])
def test_a_service_handed_back_by_another_proxy_returns_with_its_endpoints(service_first: bool):
    label = {SERVICE_PROXY_NAME_LABEL: "other"}
    trackers = synced(service("web", labels=label), endpoint_slice("web", "10.42.1.5", labels=label))
    assert trackers.service_ports(WEB) == ()
    steps = [service("web"), endpoint_slice("web", "10.42.1.5")]
    for step in steps if service_first else reversed(steps):
        take(trackers, step)
    assert dirty(trackers) == {WEB}
    assert len(trackers.service_ports(WEB)) == 1
    assert addresses(trackers) == ["10.42.1.5"]
    take(trackers, service("web", labels=label))
    assert trackers.service_ports(WEB) == ()


def test_an_external_name_that_becomes_a_cluster_ip_and_back():
    trackers = synced(service("web", type="ExternalName"), endpoint_slice("web", "10.42.1.5"))
    assert list(trackers.service_names) == []
    assert take(trackers, service("web")) == [True]
    assert list(trackers.service_names) == [WEB]
    assert take(trackers, service("web", type="ExternalName")) == [False]
    assert list(trackers.service_names) == []


def test_a_headless_service_never_shows():
    trackers = trackers_of(service("web", cluster_ips=(), cluster_ip="None"))
    assert (list(trackers.service_names), dirty(trackers), list(trackers.problems)) == ([], frozenset(), [])


def test_deleting_twice_or_the_unknown_is_harmless():
    trackers = synced(service("web"), endpoint_slice("web", "10.42.1.5"))
    for _ in range(2):
        remove(trackers, service("web"), endpoint_slice("web"), service("api"), endpoint_slice("api"))
    assert dirty(trackers) == {WEB}
    assert list(trackers.service_names) == []


# -- one sync --------------------------------------------------------------------------------------------------------


def test_a_failed_sync_consumes_nothing():
    trackers = trackers_of(service("web"))
    first = trackers.checkout()
    assert trackers.checkout().dirty == first.dirty == {WEB}
    assert trackers.has_pending


def test_changes_that_arrive_during_a_sync_belong_to_the_next():
    trackers = trackers_of(service("web"))
    changes = trackers.checkout()
    take(trackers, service("api"), service("web", port(81)))
    trackers.commit(changes)
    assert dirty(trackers) == {WEB, API}


def test_what_a_failed_sync_showed_stays_dirty_even_if_it_went_back():
    """The table and perhaps half the kernel hold what was shown; only a sync that succeeds can take it back."""
    trackers = synced()
    take(trackers, service("web"))
    trackers.checkout()  # and the sync fails
    remove(trackers, service("web"))
    assert trackers.has_pending
    changes = trackers.checkout()
    assert changes.dirty == {WEB}
    trackers.commit(changes)
    assert (dirty(trackers), trackers.has_pending) == (frozenset(), False)


def test_a_service_that_a_slice_passed_through_during_failed_syncs_stays_dirty():
    trackers = synced(*(service(name) for name in "abc"), endpoint_slice("a", "10.42.1.5", name="s"))
    take(trackers, endpoint_slice("b", "10.42.1.5", name="s"))
    trackers.checkout()  # and the sync fails
    take(trackers, endpoint_slice("c", "10.42.1.5", name="s"))
    assert dirty(trackers) == {service_name(name) for name in "abc"}


# -- problems --------------------------------------------------------------------------------------------------------


def problems_after(trackers: Trackers, thing: Service | EndpointSlice) -> list[str]:
    _, problems = trackers.update(changed(thing))  # type: ignore[arg-type]
    return [problem.field for problem in problems]


def test_a_problem_is_told_once_until_it_changes():
    trackers = Trackers("n1")
    bad = (port(0, "a"), port(80, "b"))
    assert problems_after(trackers, service("web", *bad)) == ["spec.ports[0].port"]
    assert problems_after(trackers, service("web", *bad)) == []
    assert problems_after(trackers, service("web", *bad, external_ips=["x"])) == ["spec.externalIPs[0]"]
    assert problems_after(trackers, service("web")) == []
    assert problems_after(trackers, service("web", *bad)) == ["spec.ports[0].port"]


def test_problems_of_slices_are_told_once_too():
    trackers = Trackers("n1")
    bad = endpoint_slice("web", "10.42.1.5", "fd42::1")
    assert problems_after(trackers, bad) == ["endpoints[1].addresses[0]"]
    assert problems_after(trackers, bad) == []


def test_problems_end_with_their_object():
    trackers = trackers_of(service("web", port(0)), endpoint_slice("web", "x"))
    assert len(list(trackers.problems)) == 2
    remove(trackers, service("web"), endpoint_slice("web"))
    assert list(trackers.problems) == []


def test_a_service_and_a_slice_of_one_name_do_not_share_their_problems():
    trackers = Trackers("n1")
    assert problems_after(trackers, service("web", port(0))) == ["spec.ports[0].port"]
    assert problems_after(trackers, endpoint_slice("web", "x", name="web")) == ["endpoints[0].addresses[0]"]
    assert len(list(trackers.problems)) == 2


@pytest.mark.parametrize(
    "name", ["", "a b", 'a"', "a\n-A KUBE-X", "A", "ä", "-a", "a-", "a/b", "x" * 254, "$(id)", "a;b"]
)
@pytest.mark.parametrize("place", ["name", "namespace"])
def test_an_object_with_a_hostile_name_is_ignored_and_named(name: str, place: str):
    names = ("shop", name) if place == "name" else (name, "web")
    trackers = Trackers("n1")
    for event in (
        ServiceChanged(ServiceName(*names), service("web")),
        SliceChanged(SliceName(*names), endpoint_slice("web", "10.42.1.5")),
    ):
        changes, (problem,) = trackers.update(event)
        assert not changes
        assert problem.field == f"metadata.{place}"
        assert str(problem).isprintable()
    assert (list(trackers.service_names), dirty(trackers)) == ([], frozenset())


def test_one_bad_object_does_not_harm_the_others():
    trackers = trackers_of(
        service("nul"),
        EndpointSlice(ObjectMeta("n-1", "shop", labels={"kubernetes.io/service-name": "nul"}), "IPv4", None, None),
        service("web"),
        endpoint_slice("web", "10.42.1.5"),
    )
    assert (addresses(trackers, service_name("nul")), addresses(trackers)) == ([], ["10.42.1.5"])
