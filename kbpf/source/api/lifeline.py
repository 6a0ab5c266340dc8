"""Keeps this node able to reach the API server when it does so through the Service `kubernetes`. Pure.

That Service's ClusterIP leads to the API server because kbpf itself makes it lead there. Should its endpoints vanish -
API servers take themselves off the list when they stop, and put themselves on it when they run again - the node would
cut its own line, and never hear of the new ones. So the last endpoints of this one Service stay until there are
others, if, and only if, the address that kbpf connects to is the ClusterIP or the name of that Service. With any
other address nothing is held back.

`ApiSource` passes every event through it.
"""

from kbpf.model.address import parse_address
from kbpf.model.events import Event, ServiceChanged, SliceChanged
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.objects import SERVICE_NAME_LABEL, EndpointSlice, Service

API_SERVICE = ServiceName("default", "kubernetes")
API_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Lifeline:
    """`host` is what the URL of the API server names."""

    def __init__(self, host: str) -> None:
        self._host = _canonical(host)
        self._is_used = False
        self._slices: dict[SliceName, EndpointSlice] = {}
        """Those of the Service, as the API server has them."""
        self._held_slices: dict[SliceName, SliceChanged] = {}
        """What was not passed on, because no endpoint was left after it."""
        self._is_service_held = False
        self._news = ""

    def take_news(self) -> str:
        """What the log should hear of it; empty: nothing new."""
        news, self._news = self._news, ""
        return news

    def pass_on(self, event: Event) -> list[Event]:
        """What may go on, now that this came. Endpoints come before their predecessors leave."""
        if isinstance(event, ServiceChanged) and event.name == API_SERVICE:
            return self._take_service(event)
        if isinstance(event, SliceChanged) and (event.name in self._slices or _is_of_api_service(event)):
            return self._take_slice(event)
        return [event]

    def _take_service(self, event: ServiceChanged) -> list[Event]:
        if event.service is None and self._is_used:
            self._hold("was deleted")
            self._is_service_held = True
            return []
        self._is_used = event.service is not None and self._leads_here(event.service)
        self._is_service_held = False
        return [event] if self._is_used else [event, *self._release()]

    def _take_slice(self, event: SliceChanged) -> list[Event]:
        had_backends = self._has_backends() or bool(self._held_slices)
        self._held_slices.pop(event.name, None)
        if event.slice is not None and _is_of_api_service(event):
            self._slices[event.name] = event.slice
        else:
            self._slices.pop(event.name, None)
        if self._is_used and had_backends and not self._has_backends():
            self._hold("has no endpoints left")
            self._held_slices[event.name] = event
            return []
        return [event, *self._release()]

    def _release(self) -> list[Event]:
        released, self._held_slices = self._held_slices, {}
        return list(released.values())

    def _has_backends(self) -> bool:
        return any(map(_has_backends, self._slices.values()))

    def _hold(self, words: str) -> None:
        if not self._held_slices and not self._is_service_held:
            kept = "what it had stays, because this node reaches the API server through it"
            self._news = f"Service {API_SERVICE} {words}: {kept}"

    def _leads_here(self, service: Service) -> bool:
        if self._host in API_SERVICE_NAMES or self._host.startswith("kubernetes.default.svc."):
            return True
        spec = service.spec
        addresses = [*(spec.cluster_ips or ()), spec.cluster_ip or ""] if spec else []
        return self._host in map(_canonical, addresses)


def _is_of_api_service(event: SliceChanged) -> bool:
    labels = (event.slice.metadata.labels if event.slice else None) or {}
    return event.name.namespace == API_SERVICE.namespace and labels.get(SERVICE_NAME_LABEL) == API_SERVICE.name


def _has_backends(slice_: EndpointSlice) -> bool:
    """Something that connections may be sent to, if only for want of better: see the categories of endpoints."""
    return any(
        endpoint.addresses
        and (endpoint.conditions is None or endpoint.conditions.ready is not False or bool(endpoint.conditions.serving))
        for endpoint in slice_.endpoints or ()
    )


def _canonical(host: str) -> str:
    try:
        return parse_address(host.strip("[]"))
    except ValueError:
        return host.lower()
