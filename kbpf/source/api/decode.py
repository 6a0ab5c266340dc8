"""From the bytes of an API server to typed objects: list pages, watch lines, single objects. Pure.

Objects are decoded one by one from their own bytes straight into the structs of `model.objects`, so a bad one harms no
other. What is no answer of an API server at all raises ApiFailure.
"""

import sys
from typing import NamedTuple, TypeVar

import msgspec

from kbpf.errors import ApiFailure
from kbpf.model.objects import ApiObject
from kbpf.model.problem import shown
from kbpf.source.api.resource import ENDPOINT_SLICES, SERVICES, Resource, own_node
from kbpf.source.json_documents import JsonDocument
from kbpf.source.object_key import Object, ObjectKey

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
DECODERS = {each.kind: msgspec.json.Decoder(each.object_type) for each in (SERVICES, ENDPOINT_SLICES, own_node(""))}
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Decoded = TypeVar("Decoded")


class ListMeta(ApiObject, frozen=True):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(ApiObject, frozen=True):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(ApiObject, frozen=True):
    type: str
    object: msgspec.Raw


class Head(ApiObject, frozen=True):
    """What can be said of an object that is otherwise unreadable, and all there is in a bookmark."""

    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    annotations: dict[str, str] | None = None


class Headed(ApiObject, frozen=True):
    metadata: Head


class StatusDetails(ApiObject, frozen=True):
    retry_after_seconds: float | None = None


class Status(ApiObject, frozen=True):
    """How the API server says no."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


class Arrived(NamedTuple):
    """One object as it came. `now` is None when it cannot be used; `problem` says why."""

    key: ObjectKey | None
    version: str
    now: Object | None
    problem: str = ""


def decode_page(body: bytes) -> Page:
    return _decode(body, Page)


def decode_event(line: bytes) -> WatchEvent:
    return _decode(line, WatchEvent)


def decode_bookmark(raw: msgspec.Raw) -> Head:
    return _decode(bytes(raw), Headed).metadata


def refusal(body: bytes, status: int | None = None) -> ApiFailure:
    """What an ERROR event or the body of an HTTP error says."""
    try:
        decoded = msgspec.json.decode(body, type=Status)
    except UNREADABLE:
        decoded = Status(message=_plain(body))
    code = status or decoded.code
    words = " ".join((decoded.message or decoded.reason or "").split())
    retry_after_s = decoded.details.retry_after_seconds if decoded.details else None
    return ApiFailure(words[:300] or f"answered with status {code}", status=code, retry_after_s=retry_after_s or 0.0)


def _plain(body: bytes) -> str:
    """What something that is no API server says, if that fits into a line."""
    text = " ".join(body[:200].decode(errors="replace").split())
    return text if text.isprintable() and not text.startswith("<") else ""


def read_object(resource: Resource, raw: msgspec.Raw) -> Arrived:
    """Never raises."""
    try:
        now: Object = DECODERS[resource.kind].decode(raw)
    except UNREADABLE as error:
        return _broken(resource, bytes(raw), error)
    key = _key(resource, now.metadata.namespace, now.metadata.name)
    problem = "" if key else f"{resource.kind.value}: metadata.name: missing, not applied"
    return Arrived(key, now.metadata.resource_version or "", now if key else None, problem)


def _broken(resource: Resource, raw: bytes, error: Exception) -> Arrived:
    from kbpf.source.reader import described  # rarely needed, and with it everything that reads manifests

    words = f"{described(error, JsonDocument(0, raw))}, not applied"
    try:
        head = msgspec.json.decode(raw, type=Headed).metadata
    except UNREADABLE:
        return Arrived(None, "", None, f"{resource.kind.value}: {words}")
    key = _key(resource, head.namespace, head.name)
    return Arrived(key, head.resource_version or "", None, f"{key or resource.kind.value}: {words}")


def _key(resource: Resource, namespace: str | None, name: str | None) -> ObjectKey | None:
    # A namespace is the same text in thousands of objects.
    return ObjectKey(resource.kind, sys.intern(namespace or ""), name) if name else None


def _decode(text: bytes, type_: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(text, type=type_)
    except UNREADABLE as error:
        start = shown(text[:60].decode("latin1"))
        raise ApiFailure(f"does not answer as a Kubernetes API server does: {start}") from error
