"""Whatever a file says: no exception, lines that stay lines, and no harm to other objects."""

import json

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbpf.model.events import Kind
from kbpf.source.catalog import Catalog
from kbpf.source.object_key import ObjectKey
from kbpf.source.reader import ManifestReader
from kbpf.source.reading import FileName, Reading

GOOD = b"""\
apiVersion: v1
kind: Service
metadata: {name: good, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
"""
OTHERS = b"""\
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations: {"at": 2026-01-01T00:00:00Z, on: 'yes'}
spec: &spec
  clusterIP: 10.96.0.11
  ports:
  - {name: http, port: 80, nodePort: 30080}
  - name: "dns"
    protocol: UDP
    port: 53
---
apiVersion: v1
kind: List
items:
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  endpoints:
  - addresses: [10.42.1.5]
    conditions: {ready: true, serving: true, terminating: false}
  ports: [{name: http, port: 8080}]
- {apiVersion: v1, kind: Service, metadata: {name: api}, spec: *spec}
"""
GOOD_KEY = ObjectKey(Kind.SERVICE, "shop", "good")
FRAGMENTS = (
    *(b"---\n", b"...\n", b"%YAML 9.9\n", b"&a ", b"*a", b"<<: ", b"? ", b"- ", b": ", b"{", b"}", b"[", b"]", b"|"),
    *(b"\n", b"\r", b"\t", b'"', b"'", b"#", b"!!python/none ", b"080", b"9" * 30, b"9" * 5000, b"null"),
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8"),
)


def read(text: bytes, file: str = "a.yaml") -> Reading:
    reading = ManifestReader("n1").read(file, text)
    for remark in reading.remarks:
        assert remark.words.isprintable()
        assert 1 <= remark.line <= text.count(b"\n") + text.count(b"\r") + text.count(b"\xe2\x80\xa8") + 2
    return reading


@st.composite
def mutated(draw: st.DrawFn, text: bytes) -> bytes:
    """The text with a few of the accidents that happen to files."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = draw(st.integers(at, min(len(text), at + 40)))
        kind = draw(st.sampled_from(("insert", "delete", "replace", "cut", "repeat")))
        piece = draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=4))
        match kind:
            case "insert":
                text = text[:at] + piece + text[at:]
            case "delete":
                text = text[:at] + text[end:]
            case "replace":
                text = text[:at] + piece + text[end:]
            case "cut":
                text = text[:at]
            case "repeat":
                text = text[:end] + text[at:]
    return text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=12,
)
FIELDS = {
    "metadata": ("name", "namespace", "labels", "annotations", "uid"),
    "spec": ("clusterIP", "clusterIPs", "ipFamilies", "ports", "externalIPs", "type", "sessionAffinityConfig"),
    "status": ("loadBalancer",),
    "endpoints": (),
    "ports": (),
    "items": (),
    "addressType": (),
}


@st.composite
def odd_objects(draw: st.DrawFn) -> dict[str, object]:
    """Objects with right names and anything in them."""
    version, kind = draw(
        st.sampled_from(
            (("v1", "Service"), ("discovery.k8s.io/v1", "EndpointSlice"), ("v1", "Node"), ("v1", "List"), ("v1", "Pod"))
        )
    )
    value: dict[str, object] = {"apiVersion": version, "kind": kind, "metadata": {"name": "odd"}}
    for field in draw(st.lists(st.sampled_from(list(FIELDS)), max_size=3, unique=True)):
        inner = {name: draw(json_values) for name in FIELDS[field] if draw(st.booleans())}
        value[field] = inner if inner and draw(st.booleans()) else draw(json_values)
    return value


@given(st.binary(max_size=200), st.sampled_from(("a.yaml", "a.json", "-")))
@example(b"[" * 100_000, "a.yaml")
@example(b"[" * 100_000, "a.json")
@example(b"- " * 50_000, "a.yaml")
@example(b"\xff\xfe[\x00", "a.yaml")
@example(b'{"items": [' * 3_000, "-")
def test_random_bytes_never_raise(text: bytes, file: str):
    read(text, file)


@given(mutated(OTHERS))
@settings(max_examples=400)
def test_a_damaged_document_never_harms_the_one_before_it(text: bytes):
    assert GOOD_KEY in read(GOOD + b"---\n" + text).objects


@given(mutated(OTHERS), mutated(GOOD + b"---\n" + OTHERS))
def test_a_damaged_file_never_harms_another_one(first: bytes, second: bytes):
    catalog = Catalog()
    catalog.put(FileName(0, "a.yaml"), read(GOOD))
    assert len(catalog.take_events()) == 1
    for text in (first, second):
        catalog.put(FileName(1, "b.yaml"), read(text))
        assert all(getattr(event, "name", None) != ("shop", "good") for event in catalog.take_events())
        for problem in catalog.take_problems():
            assert str(problem).isprintable()


@given(mutated(json.dumps(yaml.safe_load(GOOD), indent=1).encode()))
def test_damaged_json_never_raises(text: bytes):
    read(text, "a.json")


@given(st.lists(odd_objects(), max_size=3))
@settings(max_examples=200)
def test_odd_objects_never_raise_and_read_alike_in_json_and_yaml(objects: list[dict[str, object]]):
    whole = {"apiVersion": "v1", "kind": "List", "items": [*objects, yaml.safe_load(GOOD)]}
    from_json = read(json.dumps(whole).encode(), "a.json")
    from_yaml = read(yaml.safe_dump(whole).encode(), "a.yaml")
    assert GOOD_KEY in from_json.objects
    assert from_json.objects.keys() == from_yaml.objects.keys()
    for key, entry in from_json.objects.items():
        assert entry.object == from_yaml.objects[key].object
