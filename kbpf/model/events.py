"""What every source delivers, in order. An object that is None is gone; a source replays nothing that did not change.

The first `Synced` of a kind says that its initial list is complete: until both Services and EndpointSlices are,
nothing is written to the kernel.
"""

import msgspec

from kbpf.errors import KbpfError
from kbpf.model.constant import Constant
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.objects import EndpointSlice, Node, Service


class Kind(Constant):
    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    NODE = "Node"


class ServiceChanged(msgspec.Struct, frozen=True):
    name: ServiceName
    service: Service | None


class SliceChanged(msgspec.Struct, frozen=True):
    name: SliceName
    slice: EndpointSlice | None


class NodeChanged(msgspec.Struct, frozen=True):
    name: str
    node: Node | None


class Synced(msgspec.Struct, frozen=True):
    kind: Kind


class NodeStateChanged(msgspec.Struct, frozen=True):
    """Something of this very node that the kernel told: a device, an address, a route, or who calls its Services."""


class SourceFailed(msgspec.Struct, frozen=True):
    """The source cannot go on, or what it said at the start no longer holds: the daemon ends with this error."""

    error: KbpfError


Event = ServiceChanged | SliceChanged | NodeChanged | NodeStateChanged | Synced
