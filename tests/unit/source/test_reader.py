"""One file: which objects it holds, and what is said about the rest of it."""

import json

import pytest
import yaml

from kbpf.model.events import Kind, SliceChanged
from kbpf.model.names import ServiceName, SliceName
from kbpf.source import reader as module
from kbpf.source.object_key import ObjectKey
from kbpf.source.reader import ManifestReader
from kbpf.source.reading import Reading
from kbpf.tracking.trackers import Trackers

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  ports:
  - {name: http, port: 80}
"""
SLICE = """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
- addresses: [10.42.1.5]
ports:
- {name: http, port: 8080}
"""
WEB = ObjectKey(Kind.SERVICE, "shop", "web")
WEB_1 = ObjectKey(Kind.ENDPOINT_SLICE, "shop", "web-1")


def read(text: str | bytes, file: str = "a.yaml") -> Reading:
    return ManifestReader("n1").read(file, text.encode() if isinstance(text, str) else text)


def remarks(text: str | bytes, file: str = "a.yaml") -> list[str]:
    return [f"{remark.line}: {remark.words}" for remark in read(text, file).remarks]


def as_json(*texts: str) -> list[dict[str, object]]:
    return [yaml.safe_load(text) for text in texts]


def test_a_file_holds_several_documents():
    reading = read(f"{SERVICE}---\n{SLICE}")
    assert reading.objects.keys() == {WEB, WEB_1}
    assert (reading.objects[WEB].line, reading.objects[WEB_1].line) == (1, 9)
    assert (reading.remarks, reading.is_partial) == ((), False)


def test_values_reach_the_object():
    spec = read(SERVICE).objects[WEB].object.spec
    assert (spec.cluster_ip, spec.ports[0].name, spec.ports[0].port) == ("10.96.0.10", "http", 80)


def test_yaml_and_json_read_alike():
    whole = {"apiVersion": "v1", "kind": "List", "items": as_json(SERVICE, SLICE)}
    expected = {key: entry.object for key, entry in read(f"{SERVICE}---\n{SLICE}").objects.items()}
    for text in (json.dumps(whole), json.dumps(whole, indent=2)):
        for file in ("a.json", "a.yaml", "-"):
            assert {key: entry.object for key, entry in read(text, file).objects.items()} == expected


def test_json_documents_may_follow_each_other():
    text = "\n".join(map(json.dumps, as_json(SERVICE, SLICE)))
    for file in ("a.json", "-"):
        assert {key: entry.line for key, entry in read(text, file).objects.items()} == {WEB: 1, WEB_1: 2}


def test_a_yaml_document_may_begin_with_a_brace():
    text = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}"
    assert read(text).objects.keys() == {WEB}
    assert remarks(text, "a.json") == ["1: Expecting property name enclosed in double quotes"]


def test_items_of_a_list_know_their_lines():
    lines = SERVICE.replace("\n", "\n  ").rstrip()
    reading = read(
        f"apiVersion: v1\nkind: List\nitems:\n- {lines}\n- {SLICE.replace(chr(10), chr(10) + '  ').rstrip()}"
    )
    assert {key: entry.line for key, entry in reading.objects.items()} == {WEB: 4, WEB_1: 11}
    whole = {"apiVersion": "v1", "kind": "List", "items": as_json(SERVICE)}
    assert read(json.dumps(whole, indent=1), "a.json").objects[WEB].line == 5


@pytest.mark.parametrize(
    ("kind", "version", "text", "key"),
    [("ServiceList", "v1", SERVICE, WEB), ("EndpointSliceList", "discovery.k8s.io/v1", SLICE, WEB_1)],
)
def test_items_of_a_typed_list_need_not_repeat_their_kind(kind: str, version: str, text: str, key: ObjectKey):
    (item,) = as_json(text)
    del item["kind"], item["apiVersion"]
    assert read(json.dumps({"apiVersion": version, "kind": kind, "items": [item]})).objects.keys() == {key}


def test_lists_may_stand_in_lists():
    inner = {"apiVersion": "v1", "kind": "List", "items": as_json(SERVICE)}
    assert read(json.dumps({"apiVersion": "v1", "kind": "List", "items": [inner]})).objects.keys() == {WEB}


def test_endless_lists_within_lists_are_refused():
    value: dict[str, object] = {"kind": "List", "items": []}
    for _ in range(50):
        value = {"kind": "List", "items": [value]}
    assert remarks(json.dumps(value)) == ["1: lists within lists more than 10 deep, not applied"]


def test_an_empty_file_holds_nothing_and_is_no_problem():
    for text in ("", "\n", "# only a comment\n", "---\n", "---\n# a\n---\nnull\n"):
        assert read(text) == Reading()


def test_a_missing_namespace_is_default():
    text = SERVICE.replace(", namespace: shop", "")
    assert read(text).objects.keys() == {ObjectKey(Kind.SERVICE, "default", "web")}


def test_only_the_own_node_is_taken():
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("n1", "n2")]
    reading = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    assert (reading.objects.keys(), reading.remarks) == ({ObjectKey(Kind.NODE, "", "n1")}, ())


def test_a_foreign_node_may_be_as_broken_as_it_likes():
    assert read("{apiVersion: v1, kind: Node, metadata: {name: n2, labels: 5}}").remarks == ()


def test_unknown_kinds_are_skipped_with_one_notice_a_kind():
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    knative = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"
    pods = "apiVersion: v1\nkind: PodList\nitems: [{}]\n"
    reading = read("---\n".join((pod, SERVICE, pod, knative, pods)))
    assert reading.objects.keys() == {WEB}
    assert [(remark.words, remark.is_notice) for remark in reading.remarks] == [
        ("Pod of v1 is not used, skipped", True),
        ("Service of serving.knative.dev/v1 is not used, skipped", True),
        ("PodList of v1 is not used, skipped", True),
    ]
    assert not reading.is_partial


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("port: 80", "port: '80'", "Service shop/web: spec.ports[0].port: '80': expected int, got str"),
        ("port: 80", "port: 080", "Service shop/web: spec.ports[0].port: '080': expected int, got str"),
        ("port: 80", "port: 80.5", "Service shop/web: spec.ports[0].port: 80.5: expected int, got float"),
        ("clusterIP: 10.96.0.10", "clusterIP: 10", "Service shop/web: spec.clusterIP: 10: expected str, got int"),
        ("  - {name: http, port: 80}", "    http: 80", "Service shop/web: spec.ports: expected array, got object"),
        ("shop}", "shop, labels: {a: 1}}", "Service shop/web: metadata.labels[...]: expected str, got int"),
        (
            "shop}",
            "shop, annotations: {a: yes}}",
            "Service shop/web: metadata.annotations[...]: expected str, got bool",
        ),
        ("spec:", "status: 5\nspec:", "Service shop/web: status: 5: expected object, got int"),
    ],
)
def test_a_wrong_type_is_named_by_object_field_and_value(old: str, new: str, words: str):
    text = "# one line before\n" + SERVICE.replace(old, new)
    reading = read(text)
    assert remarks(text) == [f"2: {words}, not applied"]
    assert (reading.objects, reading.broken, reading.is_partial) == ({}, {WEB}, False)


def test_a_wrong_type_in_json_is_named_alike():
    (item,) = as_json(SERVICE.replace("port: 80", "port: '80'"))
    words = "Service shop/web: spec.ports[0].port: '80': expected int, got str, not applied"
    assert remarks(json.dumps(item)) == [f"1: {words}"]
    assert remarks(json.dumps({"kind": "List", "items": [item]}, indent=1))[0].endswith(words)


def test_dates_in_annotations_are_text():
    text = SERVICE.replace("shop}", "shop, annotations: {at: 2026-01-01T00:00:00Z, on: 'x'}}")
    assert read(text).objects[WEB].object.metadata.annotations == {"at": "2026-01-01T00:00:00Z", "on": "x"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just words", "document: 'just words': expected object, got str"),
        ("- a\n- b", "document: expected object, got array"),
        ("kind: [1]", "kind: expected str, got array"),
        ("metadata: {name: 5}", "metadata.name: 5: expected str, got int"),
        ("a: 1", "kind: missing"),
        ("kind: Pod", "apiVersion: missing"),
        ("kind: Service", "apiVersion: missing"),
        ("{apiVersion: v1, kind: Service}", "Service: metadata.name: missing"),
        ("{apiVersion: v1, kind: Service, metadata: {generateName: a}}", "Service: metadata.name: missing"),
        ("{kind: List, items: 5}", "items: 5: expected array, got int"),
    ],
)
def test_a_document_that_names_no_object_makes_the_file_partial(text: str, words: str):
    assert remarks(text) == [f"1: {words}, not applied"]
    assert read(text).is_partial
    reading = read(f"{SERVICE}---\n{text}\n---\n{SLICE}")
    assert (reading.objects.keys(), reading.is_partial) == ({WEB, WEB_1}, True)


def test_a_syntax_error_spares_the_other_documents():
    text = f"{SERVICE}---\nkind: [\n---\n{SLICE}"
    reading = read(text)
    assert (reading.objects.keys(), reading.is_partial) == ({WEB, WEB_1}, True)
    assert remarks(text) == ["10: did not find expected node content"]


def test_the_second_of_two_objects_of_one_name_is_named():
    assert remarks(f"{SERVICE}---\n{SERVICE}") == ["9: Service shop/web: already in line 1, not applied"]
    item = as_json(SERVICE)[0]
    text = json.dumps({"kind": "List", "items": [item, item]}, indent=1)
    assert [line.split(": ", 1)[1] for line in remarks(text)] == ["Service shop/web: already in line 4, not applied"]


@pytest.mark.parametrize("name", ["a\nb", "x" * 1000, "a\x1b[31m", "ü\u202e"])
def test_hostile_names_never_break_a_line(name: str):
    text = json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": 5})
    (line,) = remarks(text)
    assert line.isprintable()
    assert len(line) < 500


def test_hostile_kinds_and_values_never_break_a_line():
    text = json.dumps({"apiVersion": "v\n1", "kind": "\x1b[2J"})
    assert [line.isprintable() for line in remarks(text)] == [True]
    text = json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": "\n" * 100})
    assert [line.isprintable() for line in remarks(text)] == [True]


def test_deep_nesting_is_one_line():
    deep = (
        '{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    )
    for text, file in ((deep, "a.json"), (deep, "a.yaml"), ("[" * 100_000, "a.json"), ("[" * 100_000, "a.yaml")):
        assert len(remarks(text, file)) == 1


def test_only_changed_documents_of_a_file_are_read_again(monkeypatch: pytest.MonkeyPatch):
    read_chunks: list[bytes] = []
    real = module.yaml_documents
    monkeypatch.setattr(module, "yaml_documents", lambda chunk: read_chunks.append(chunk) or real(chunk))
    reader = ManifestReader("n1")
    first = reader.read("a.yaml", f"{SERVICE}---\n{SLICE}".encode())
    second = reader.read("a.yaml", f"# moved by one line\n{SERVICE}---\n{SLICE}".encode())
    assert len(read_chunks) == 3
    assert second.objects[WEB_1].object is first.objects[WEB_1].object
    assert second.objects[WEB_1].line == first.objects[WEB_1].line + 1
    reader.forget("a.yaml")
    reader.read("a.yaml", SLICE.encode())
    assert len(read_chunks) == 4


@pytest.mark.parametrize("file", ["a.yaml", "a.json"])
def test_a_hundred_thousand_endpoints_in_one_file_are_read_and_tracked(file: str):
    addresses = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(100_000)]
    if file == "a.yaml":
        text = SLICE.replace("- addresses: [10.42.1.5]\n", "".join(f"- addresses: [{text}]\n" for text in addresses))
    else:
        (item,) = as_json(SLICE)
        text = json.dumps(item | {"endpoints": [{"addresses": [address]} for address in addresses]})
    thing = read(text, file).objects[WEB_1].object
    trackers = Trackers("n1")
    trackers.update(SliceChanged(SliceName("shop", "web-1"), thing))
    (endpoints,) = trackers.endpoints(ServiceName("shop", "web")).values()
    assert len(endpoints) == len(addresses)
