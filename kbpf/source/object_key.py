"""Which API object is meant, the same for objects from manifests and from an API server, and the event it makes."""

from typing import NamedTuple

from kbpf.model.events import Event, Kind, NodeChanged, ServiceChanged, SliceChanged
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.objects import EndpointSlice, Node, Service
from kbpf.model.problem import shown

Object = Service | EndpointSlice | Node


class ObjectKey(NamedTuple):
    """`namespace` is empty for a Node."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.value} {printable(name)}"


def event_of(key: ObjectKey, now: Object | None) -> Event:
    """What tells the daemon of this state of the object; None: it is gone."""
    if key.kind is Kind.NODE:
        assert now is None or isinstance(now, Node)  # noqa: S101  (the key says so; for the type checker)
        return NodeChanged(key.name, now)
    if key.kind is Kind.SERVICE:
        assert now is None or isinstance(now, Service)  # noqa: S101
        return ServiceChanged(ServiceName(key.namespace, key.name), now)
    assert now is None or isinstance(now, EndpointSlice)  # noqa: S101
    return SliceChanged(SliceName(key.namespace, key.name), now)


def printable(text: str) -> str:
    """A name from outside as it stands in a log line: as it is, unless that would break the line."""
    return text if text.isprintable() and len(text) <= 300 else shown(text)
