"""The two little languages of a scenario: a flow ("pod 10.42.1.9 -> 10.96.0.10:53/udp") and what is expected of it.

Both are parsed while a file is loaded (format.py) and used by the judges and by the engines.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from kbpf.model.address import Address, family_of, parse_address
from kbpf.model.flow import Action, Flow, Origin
from kbpf.model.names import Protocol
from tests.scenarios.harness.cluster import DEFAULT_SOURCE, generated_addresses

ORIGINS = {"pod": Origin.POD, "host": Origin.HOST, "ext": Origin.OUTSIDE}
FLOW = re.compile(
    r"(?P<origin>pod|host|ext)(?: (?P<source>[0-9a-fA-F.:]+))? -> "
    r"(?P<address>\d[\d.]*|\[[0-9a-fA-F:.]+\]):(?P<first>\d+)(?:-(?P<last>\d+))?(?:/(?P<protocol>tcp|udp|sctp))?"
)
BACKEND = re.compile(r"(?P<address>\d[\d.]*|\[[0-9a-fA-F:]+\]):(?P<first>\d+)(?:-(?P<last>\d+))?")
GENERATED = re.compile(r"generated (?P<count>\d+) at (?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Route:
    """One flow, or one for each port of a range."""

    origin: Origin
    source: Address
    destination: Address
    ports: tuple[int, ...]
    protocol: Literal["TCP", "UDP", "SCTP"]

    @property
    def flows(self) -> tuple[Flow, ...]:
        return tuple(
            Flow(self.origin, self.source, self.destination, port, Protocol(self.protocol)) for port in self.ports
        )


@dataclass(frozen=True, slots=True)
class Expectation:
    """FORWARD to exactly these (address, port), each of which must be used; or one of the other three actions."""

    action: Action
    backends: frozenset[tuple[Address, int]] = frozenset()


@cache
def parse_route(text: str) -> Route:
    match = FLOW.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no flow: write `pod|host|ext [SOURCE] -> ADDRESS:PORT[-PORT][/udp]`")
    destination = parse_address(match["address"].strip("[]"))
    source = parse_address(match["source"] or DEFAULT_SOURCE[match["origin"], family_of(destination)])
    if family_of(source) is not family_of(destination):
        raise ValueError(f"{text!r}: source and destination are of different families")
    ports = tuple(range(int(match["first"]), int(match["last"] or match["first"]) + 1))
    protocol = (match["protocol"] or "tcp").upper()
    return Route(ORIGINS[match["origin"]], source, destination, ports, protocol)  # type: ignore[arg-type]


@cache
def parse_expectation(value: str | tuple[str, ...]) -> Expectation:
    if value in ("reject", "drop", "pass"):
        return Expectation(Action(value))
    if isinstance(value, tuple) and value:
        return Expectation(Action.FORWARD, frozenset(backend for entry in value for backend in _backends(entry)))
    raise ValueError(f"{value!r} is no expectation: write reject, drop, pass or a list of ADDRESS:PORT")


def _backends(entry: str) -> list[tuple[Address, int]]:
    """`10.42.1.5:8080`, `10.42.1.5:8001-8012`, or `generated 200 at 8080` for the endpoints of endpointsGenerated."""
    if generated := GENERATED.fullmatch(entry):
        return [(address, int(generated["port"])) for address in generated_addresses(int(generated["count"]))]
    match = BACKEND.fullmatch(entry)
    if match is None:
        raise ValueError(f"{entry!r} is no endpoint: write ADDRESS:PORT, IPv6 in brackets")
    address = parse_address(match["address"].strip("[]"))
    return [(address, port) for port in range(int(match["first"]), int(match["last"] or match["first"]) + 1)]
