"""Many files, one set of objects: who wins, what is told, what stays."""

from kbpf.model.events import Event, Kind, NodeChanged, ServiceChanged, SliceChanged
from kbpf.model.names import ServiceName, SliceName
from kbpf.source.catalog import Catalog
from kbpf.source.object_key import Object, ObjectKey
from kbpf.source.reading import Entry, FileName, Reading, Remark
from tests.builders import changed, endpoint_slice, gone, node, port, service

A, B, C = FileName(0, "a.yaml"), FileName(0, "b.yaml"), FileName(1, "0.yaml")


def key_of(thing: Object) -> ObjectKey:
    event = changed(thing)
    if isinstance(event, NodeChanged):
        return ObjectKey(Kind.NODE, "", event.name)
    assert isinstance(event, ServiceChanged | SliceChanged)
    kind = Kind.SERVICE if isinstance(event, ServiceChanged) else Kind.ENDPOINT_SLICE
    return ObjectKey(kind, event.name.namespace, event.name.name)


def reading(*objects: Object, broken: tuple[Object, ...] = (), partial: bool = False, remarks: str = "") -> Reading:
    return Reading(
        {key_of(thing): Entry(line, thing) for line, thing in enumerate(objects, 1)},
        (Remark(7, remarks),) if remarks else (),
        frozenset(map(key_of, broken)),
        partial,
    )


def told(catalog: Catalog, *steps: tuple[FileName, Reading]) -> list[Event]:
    for file, each in steps:
        catalog.put(file, each)
    return catalog.take_events()


WEB, OLD_WEB, API = service("web"), service("web", port(79)), service("api")
SLICE = endpoint_slice("web", "10.42.1.5")


def test_only_what_changed_is_told():
    catalog = Catalog()
    assert told(catalog, (A, reading(OLD_WEB, API))) == [changed(API), changed(OLD_WEB)]
    assert told(catalog, (A, reading(WEB, service("api")))) == [changed(WEB)]
    assert told(catalog, (A, reading(WEB, API))) == []


def test_objects_of_a_removed_file_are_gone():
    catalog = Catalog()
    told(catalog, (A, reading(WEB)), (B, reading(API)))
    catalog.remove(A)
    assert catalog.take_events() == [gone(WEB)]
    catalog.remove(A)
    assert catalog.take_events() == []


def test_an_object_that_moves_to_another_file_is_no_change():
    catalog = Catalog()
    told(catalog, (A, reading(WEB)))
    catalog.remove(A)
    assert told(catalog, (B, reading(WEB))) == []


def test_an_object_that_comes_and_goes_between_two_looks_was_never_there():
    catalog = Catalog()
    catalog.put(A, reading(WEB))
    catalog.remove(A)
    assert catalog.take_events() == []


def test_endpoints_come_before_their_service_and_leave_after_it():
    catalog = Catalog()
    here = node("n1", "192.168.60.11")
    assert told(catalog, (A, reading(WEB, SLICE, here))) == [changed(here), changed(SLICE), changed(WEB)]
    renamed = endpoint_slice("web", "10.42.1.5", name="web-2")
    assert told(catalog, (A, reading(WEB, renamed, here))) == [changed(renamed), gone(SLICE)]
    assert told(catalog, (A, reading())) == [gone(here), gone(WEB), gone(renamed)]


def test_the_first_file_wins_and_the_next_takes_over():
    catalog = Catalog()
    assert told(catalog, (B, reading(OLD_WEB))) == [changed(OLD_WEB)]
    assert told(catalog, (A, reading(WEB))) == [changed(WEB)]
    assert [str(problem) for problem in catalog.take_problems()] == [
        "b.yaml:1: Service shop/web: already in a.yaml, not applied"
    ]
    assert told(catalog, (B, reading(API, OLD_WEB))) == [changed(API)]
    catalog.remove(A)
    assert catalog.take_events() == [changed(OLD_WEB)]


def test_files_win_by_option_before_path():
    catalog = Catalog()
    assert told(catalog, (C, reading(WEB)), (B, reading(OLD_WEB))) == [changed(OLD_WEB)]


def test_a_broken_object_stays_as_it_was():
    catalog = Catalog()
    told(catalog, (A, reading(WEB, API)))
    assert told(catalog, (A, reading(broken=(WEB,)))) == [gone(API)]
    assert told(catalog, (A, reading(broken=(WEB,)))) == []
    assert told(catalog, (A, reading())) == [gone(WEB)]


def test_an_object_that_was_never_good_is_not_there():
    assert told(Catalog(), (A, reading(broken=(WEB,)))) == []


def test_a_good_object_beats_a_broken_one_of_the_same_name_in_its_file():
    catalog = Catalog()
    told(catalog, (A, reading(OLD_WEB)))
    assert told(catalog, (A, reading(WEB, broken=(WEB,)))) == [changed(WEB)]


def test_a_partial_file_gives_nothing_up():
    catalog = Catalog()
    told(catalog, (A, reading(OLD_WEB, API)))
    assert told(catalog, (A, reading(WEB, partial=True))) == [changed(WEB)]
    assert told(catalog, (A, reading(WEB))) == [gone(API)]


def test_an_unreadable_file_gives_nothing_up_and_is_named_once():
    catalog = Catalog()
    told(catalog, (A, reading(WEB)))
    for _ in range(2):
        catalog.cannot_read(A, "cannot be read: Permission denied")
        assert catalog.take_events() == []
    assert [str(problem) for problem in catalog.take_problems()] == ["a.yaml: cannot be read: Permission denied"]


def test_a_problem_is_told_once_until_it_changes():
    catalog = Catalog()
    for words, lines in (("x", ["a.yaml:7: x"]), ("x", []), ("y", ["a.yaml:7: y"]), ("", []), ("y", ["a.yaml:7: y"])):
        catalog.put(A, reading(remarks=words))
        assert [str(problem) for problem in catalog.take_problems()] == lines


def test_services_of_two_namespaces_are_two():
    catalog = Catalog()
    other = service("web", namespace="other")
    assert told(catalog, (A, reading(WEB, other))) == [changed(other), changed(WEB)]
    assert told(catalog, (A, reading(other))) == [ServiceChanged(ServiceName("shop", "web"), None)]
    catalog.remove(A)
    catalog.put(B, reading(SLICE))
    assert catalog.take_events() == [changed(SLICE), gone(other)]
    catalog.remove(B)
    assert catalog.take_events() == [SliceChanged(SliceName("shop", "web-ipv4"), None)]
