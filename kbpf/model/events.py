"""What every source delivers, in order. An object that is None is gone; a source replays nothing that did not change.

The first `Synced` of a kind says that its initial list is complete: until both Services and EndpointSlices are,
nothing is written to the kernel.
"""

from dataclasses import dataclass

from kbpf.errors import KbpfError
from kbpf.model.constant import Constant
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.objects import EndpointSlice, Node, Service


class Kind(Constant):
    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    NODE = "Node"


@dataclass(frozen=True, slots=True)
class ServiceChanged:
    name: ServiceName
    service: Service | None


@dataclass(frozen=True, slots=True)
class SliceChanged:
    name: SliceName
    slice: EndpointSlice | None


@dataclass(frozen=True, slots=True)
class NodeChanged:
    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class Synced:
    kind: Kind


@dataclass(frozen=True, slots=True)
class NodeStateChanged:
    """Something of this very node that the kernel told: a device, an address, a route, or who calls its Services."""


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """The source cannot go on, or what it said at the start no longer holds: the daemon ends with this error."""

    error: KbpfError


Event = ServiceChanged | SliceChanged | NodeChanged | NodeStateChanged | Synced
