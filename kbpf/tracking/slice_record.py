"""From an EndpointSlice object to the reduced record that the cache keeps and compares.

Only what changes routing is in the record, so a new resourceVersion or annotation alone is no change. Pure.
"""

import sys
from functools import lru_cache

import msgspec

from kbpf.model.address import Address, Family, family_of, parse_address, special_use
from kbpf.model.endpoint import Endpoint
from kbpf.model.names import Protocol, ServiceName, SliceName
from kbpf.model.objects import HEADLESS_LABEL, SERVICE_NAME_LABEL, EndpointSlice, Hint, SliceEndpoint, SlicePort
from kbpf.model.problem import Problem, shown
from kbpf.tracking.service_ports import is_port

NO_HINTS: frozenset[str] = frozenset()


class SliceRecord(msgspec.Struct, frozen=True, gc=False):
    """`endpoints` carry port 0: each is multiplied by each of `ports` when the slices of a Service are merged."""

    service: ServiceName
    family: Family
    ports: tuple[tuple[str, Protocol, int], ...]
    endpoints: tuple[Endpoint, ...]


def slice_record(
    name: SliceName, slice_: EndpointSlice, node_name: str
) -> tuple[SliceRecord | None, tuple[Problem, ...]]:
    """The record of a slice, or None when the slice is none of ours: headless, FQDN, or without a Service."""
    subject = f"EndpointSlice {name}"
    problems: list[Problem] = []
    labels = slice_.metadata.labels or {}
    if HEADLESS_LABEL in labels or slice_.address_type == "FQDN":
        return None, ()
    service = labels.get(SERVICE_NAME_LABEL)
    if not service:
        return None, (Problem(subject, f"metadata.labels[{SERVICE_NAME_LABEL}]", shown(service), "slice ignored"),)
    try:
        family = Family(slice_.address_type)
    except ValueError:
        action = "is not IPv4, IPv6 or FQDN, slice ignored"
        return None, (Problem(subject, "addressType", shown(slice_.address_type), action),)
    record = SliceRecord(
        service=ServiceName(name.namespace, service),
        family=family,
        ports=_ports(subject, slice_.ports or (), problems),
        endpoints=_endpoints(subject, family, slice_.endpoints or (), node_name, problems),
    )
    return record, tuple(problems)


def _ports(
    subject: str, ports: list[SlicePort] | tuple[()], problems: list[Problem]
) -> tuple[tuple[str, Protocol, int], ...]:
    found: list[tuple[str, Protocol, int]] = []
    for index, port in enumerate(ports):
        field = f"ports[{index}]"
        try:
            protocol = Protocol(port.protocol or "TCP")
        except ValueError:
            problems.append(Problem(subject, f"{field}.protocol", shown(port.protocol), "port skipped"))
            continue
        if port.name is None:
            # The API server defaults it to ""; nil is abnormal and kube-proxy skips it too.
            problems.append(Problem(subject, f"{field}.name", "null", "port skipped"))
        elif port.port is None or not is_port(port.port):
            # A null port ("all ports" in the API) is not implemented by kube-proxy either.
            problems.append(Problem(subject, f"{field}.port", shown(port.port), "not a port number, port skipped"))
        else:
            found.append((sys.intern(port.name), protocol, port.port))
    return tuple(found)


def _endpoints(
    subject: str, family: Family, endpoints: list[SliceEndpoint] | tuple[()], node_name: str, problems: list[Problem]
) -> tuple[Endpoint, ...]:
    found: list[Endpoint] = []
    wrong: list[tuple[int, str, str]] = []
    for index, endpoint in enumerate(endpoints):
        if not endpoint.addresses:
            continue
        text = endpoint.addresses[0]
        try:
            address = parse_address(text)
            if family_of(address) is not family:
                raise ValueError(f"is not an {family.value} address")
            if kind := special_use(address):
                raise ValueError(f"is {'an' if kind[0] == 'u' else 'a'} {kind} address")
        except ValueError as error:
            wrong.append((index, text, str(error)))
        else:
            found.append(_endpoint(endpoint, address, node_name))
    if wrong:
        # One line, however many there are: anybody who may write slices could fill the log.
        index, text, reason = wrong[0]
        others = f", as are {len(wrong) - 1} more of this slice" if len(wrong) > 1 else ""
        action = f"{reason}, endpoint skipped{others}"
        problems.append(Problem(subject, f"endpoints[{index}].addresses[0]", shown(text), action))
    return tuple(found)


def _endpoint(endpoint: SliceEndpoint, address: Address, node_name: str) -> Endpoint:
    """Nil conditions: ready and serving default to true, terminating to false; the three are independent inputs."""
    conditions, hints = endpoint.conditions, endpoint.hints
    return Endpoint(
        address=address,
        port=0,
        is_local=bool(node_name) and endpoint.node_name == node_name,
        ready=conditions is None or conditions.ready is not False,
        serving=conditions is None or conditions.serving is not False,
        terminating=conditions is not None and conditions.terminating is True,
        zone_hints=_names(hints.for_zones) if hints else NO_HINTS,
        node_hints=_names(hints.for_nodes) if hints else NO_HINTS,
    )


def _names(hints: list[Hint] | None) -> frozenset[str]:
    return _shared_set(tuple(hint.name for hint in hints or () if hint.name))


@lru_cache(maxsize=1024)
def _shared_set(names: tuple[str, ...]) -> frozenset[str]:
    """A set takes 216 bytes, twice for each endpoint; a cluster has few different ones."""
    return frozenset(names)
