"""From the text of one manifest file to the objects in it and what is wrong with it. Pure.

The manifest source calls it for each file that changed; the catalog merges what it returns. One bad object or document
never spoils another one, and nothing in a file can raise.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from kbpf.model.events import Kind
from kbpf.model.objects import ApiObject, EndpointSlice, Node, Service
from kbpf.model.problem import shown
from kbpf.source.chunks import yaml_chunks
from kbpf.source.document import Document, SyntaxProblem
from kbpf.source.json_documents import json_documents
from kbpf.source.object_key import Object, ObjectKey, printable
from kbpf.source.reading import Entry, Reading, Remark
from kbpf.source.yaml_documents import yaml_documents

KINDS: dict[tuple[str, str], tuple[Kind, type[Object]]] = {
    ("v1", "Service"): (Kind.SERVICE, Service),
    ("discovery.k8s.io/v1", "EndpointSlice"): (Kind.ENDPOINT_SLICE, EndpointSlice),
    ("v1", "Node"): (Kind.NODE, Node),
}
MAX_LIST_DEPTH = 10
NOT_APPLIED = "not applied"
MSGSPEC_MESSAGE = re.compile(r"(?P<words>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
PATH_STEP = re.compile(r"\.([A-Za-z]+)|\[([0-9]+)\]")


class HeadMeta(ApiObject, frozen=True):
    name: str | None = None
    namespace: str | None = None


class Head(ApiObject, frozen=True):
    """What says which object a document is."""

    kind: str | None = None
    api_version: str | None = None
    metadata: HeadMeta | None = None


class ManifestReader:
    """Remembers what the documents of a file said, so that an edit costs the edited documents only."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._known: dict[str, dict[bytes, Reading]] = {}

    def read(self, file: str, text: bytes) -> Reading:
        if is_json(file, text):
            self._known.pop(file, None)
            return read_documents(json_documents(text), self._node_name)
        known, now = self._known.get(file, {}), {}
        readings: list[tuple[int, Reading]] = []
        for lines, chunk in yaml_chunks(text):
            digest = blake2b(chunk, digest_size=16).digest()
            reading = known.get(digest) or read_documents(yaml_documents(chunk), self._node_name)
            now[digest] = reading
            readings.append((lines, reading))
        self._known[file] = now
        return joined(readings)

    def forget(self, file: str) -> None:
        self._known.pop(file, None)


def is_json(file: str, text: bytes) -> bool:
    """By its name, or because it is: a YAML document may begin with a brace, too."""
    if file.lower().endswith(".json"):
        return True
    if not text.lstrip().startswith(b"{"):
        return False
    try:
        for _ in json_documents(text):
            pass
    except SyntaxProblem:
        return False
    return True


def read_documents(documents: Iterator[Document], node_name: str) -> Reading:
    collector = _Collector(node_name)
    try:
        for document in documents:
            collector.take(document)
    except SyntaxProblem as problem:
        collector.remarks.append(Remark(problem.line, problem.words))
        collector.is_partial = True
    return collector.reading()


def joined(readings: list[tuple[int, Reading]]) -> Reading:
    """One reading of a file out of those of its chunks, each with the number of lines before it."""
    objects: dict[ObjectKey, Entry] = {}
    remarks: list[Remark] = []
    for lines, reading in readings:
        remarks += (remark._replace(line=remark.line + lines) for remark in reading.remarks)
        for key, entry in reading.objects.items():
            _add(objects, remarks, key, Entry(entry.line + lines, entry.object))
    return Reading(
        objects,
        _notices_once(remarks),
        frozenset().union(*(reading.broken for _, reading in readings)),
        any(reading.is_partial for _, reading in readings),
    )


class _Collector:
    """Gathers the objects of documents."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._objects: dict[ObjectKey, Entry] = {}
        self._broken: set[ObjectKey] = set()
        self.remarks: list[Remark] = []
        self.is_partial = False

    def reading(self) -> Reading:
        return Reading(self._objects, _notices_once(self.remarks), frozenset(self._broken), self.is_partial)

    def take(self, document: Document, default: tuple[str, str] = ("", ""), depth: int = 0) -> None:
        """A document or an item of a list; `default` is the version and kind that an item need not repeat."""
        try:
            head = document.decode(Head)
        except (msgspec.DecodeError, RecursionError) as error:
            if not _is_null(document):
                self._cannot_tell(document, f"{described(error, document)}, {NOT_APPLIED}")
            return
        version, kind = head.api_version or default[0], head.kind or default[1]
        if not kind:
            self._cannot_tell(document, f"kind: missing, {NOT_APPLIED}")
        elif kind == "List":
            self._take_items(document, ("", ""), depth)
        elif (item := (version, kind.removesuffix("List"))) in KINDS and item[1] != kind:
            self._take_items(document, item, depth)
        elif (version, kind) in KINDS:
            self._take_object(document, head, *KINDS[version, kind])
        elif not version:
            self._cannot_tell(document, f"apiVersion: missing, {NOT_APPLIED}")
        else:
            words = f"{printable(kind)} of {printable(version)} is not used, skipped"
            self.remarks.append(Remark(document.line, words, is_notice=True))

    def _take_items(self, document: Document, default: tuple[str, str], depth: int) -> None:
        if depth == MAX_LIST_DEPTH:
            self._cannot_tell(document, f"lists within lists more than {MAX_LIST_DEPTH} deep, {NOT_APPLIED}")
            return
        try:
            for item in document.items():
                self.take(item, default, depth + 1)
        except (msgspec.DecodeError, RecursionError) as error:
            self._cannot_tell(document, f"{described(error, document)}, {NOT_APPLIED}")

    def _take_object(self, document: Document, head: Head, kind: Kind, type_: type[Object]) -> None:
        metadata = head.metadata or HeadMeta()
        if not metadata.name:
            self._cannot_tell(document, f"{kind.value}: metadata.name: missing, {NOT_APPLIED}")
            return
        if kind is Kind.NODE and metadata.name != self._node_name:
            return
        namespace = "" if kind is Kind.NODE else metadata.namespace or "default"
        key = ObjectKey(kind, namespace, metadata.name)
        try:
            entry = Entry(document.line, document.decode(type_))
        except (msgspec.DecodeError, RecursionError) as error:
            self.remarks.append(Remark(document.line, f"{key}: {described(error, document)}, {NOT_APPLIED}"))
            self._broken.add(key)
            return
        _add(self._objects, self.remarks, key, entry)

    def _cannot_tell(self, document: Document, words: str) -> None:
        """Some object is here, but which one nobody knows: none that was in this file before may be given up."""
        self.remarks.append(Remark(document.line, words))
        self.is_partial = True


def _add(objects: dict[ObjectKey, Entry], remarks: list[Remark], key: ObjectKey, entry: Entry) -> None:
    first = objects.setdefault(key, entry)
    if first is not entry:
        remarks.append(Remark(entry.line, f"{key}: already in line {first.line}, {NOT_APPLIED}"))


def _notices_once(remarks: list[Remark]) -> tuple[Remark, ...]:
    """A file full of Pods needs one line, not thousands."""
    first: dict[str | Remark, Remark] = {}
    for remark in remarks:
        first.setdefault(remark.words if remark.is_notice else remark, remark)
    return tuple(first.values())


def described(error: Exception, document: Document) -> str:
    """`spec.ports[0].port: '080': expected int, got str` from what msgspec says."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    match = MSGSPEC_MESSAGE.fullmatch(str(error))
    words, path = (match["words"], match["path"] or "") if match else (str(error), "")
    words = words.replace("`", "").replace(" | null", "")
    where = path.replace("`", "").replace("$.", "").replace("$", "document") or "document"
    value = _value_at(document, path)
    parts = [printable(where), "" if value is None else shown(value), words[:1].lower() + words[1:]]
    return ": ".join(part for part in parts if part)


def _is_null(document: Document) -> bool:
    """An empty document, as `---` at the end of a file makes one."""
    try:
        return document.value() is None
    except (msgspec.DecodeError, RecursionError):
        return False


def _value_at(document: Document, path: str) -> object:
    """The scalar that the path names, if it names one."""
    try:
        value = document.value()
    except (msgspec.DecodeError, RecursionError):
        return None
    for name, index in PATH_STEP.findall(path):
        try:
            value = value[name] if isinstance(value, dict) and name else value[int(index)]  # type: ignore[index]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value if isinstance(value, str | int | float) and not path.endswith("[...]") else None
