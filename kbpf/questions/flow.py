"""From the words of a command line to a flow: `10.42.1.9 10.96.0.10:80/udp`. Pure; used by `explain`."""

import re

from kbpf.errors import UsageError
from kbpf.model.address import Address, family_of, parse_address
from kbpf.model.flow import Flow, Origin
from kbpf.model.names import Protocol
from kbpf.model.table import ServiceTable
from kbpf.policy.reference import ReferenceNode

HOST = "host"
_DESTINATION = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:/\[\]]+)):(?P<port>\d{1,5})(?:/(?P<protocol>\w+))?")


def flow_of(client: str, destination: str, node: ReferenceNode, table: ServiceTable, origin: Origin | None) -> Flow:
    """`origin` None: found out from the addresses. Raises UsageError."""
    address, port, protocol = parse_destination(destination)
    if client == HOST:
        source = _own_source(address, node)
        return Flow(origin or Origin.HOST, source, address, port, protocol)
    source = _address(client, "CLIENT is an IP address, or `host`")
    if family_of(source) is not family_of(address):
        raise UsageError(f"{client} and {address} are of different families")
    return Flow(origin or origin_of(source, node, table), source, address, port, protocol)


def parse_destination(text: str) -> tuple[Address, int, Protocol]:
    hint = "DESTINATION is ADDRESS:PORT, or ADDRESS:PORT/udp; IPv6 as [fd96::10]:80"
    found = _DESTINATION.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= 65535:
        raise UsageError(f"{text!r}: {hint}")
    protocol = (found["protocol"] or "tcp").upper()
    if protocol not in Protocol.__members__:
        raise UsageError(f"{text!r}: protocols are tcp, udp and sctp")
    return _address(found["v6"] or found["v4"], hint), int(found["port"]), Protocol(protocol)


def origin_of(source: Address, node: ReferenceNode, table: ServiceTable) -> Origin:
    """Where who has this address seems to be; pods of other nodes are outside: their packets come over the wire."""
    if source in node.local_addresses:
        return Origin.HOST
    known = {backend for port in table for backend in (*port.cluster, *port.local) if backend.address == source}
    if known:
        return Origin.POD if any(backend.is_local for backend in known) else Origin.OUTSIDE
    detector = node.detectors.get(family_of(source))
    is_pod = detector is not None and detector.is_local(Flow(Origin.OUTSIDE, source, source, 1, Protocol.TCP))
    return Origin.POD if is_pod else Origin.OUTSIDE


def _own_source(destination: Address, node: ReferenceNode) -> Address:
    """The kernel takes the destination itself where that is an address of the node."""
    if destination in node.local_addresses:
        return destination
    own = [each for each in (*sorted(node.node_ips), *sorted(node.local_addresses)) if not _is_loopback(each)]
    of_family = [each for each in own if family_of(each) is family_of(destination)]
    if not of_family:
        raise UsageError(f"this node has no {family_of(destination).value} address to call {destination} from")
    return of_family[0]


def _is_loopback(address: Address) -> bool:
    return address == "::1" or address.startswith("127.")


def _address(text: str, hint: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no IP address: {hint}") from error
