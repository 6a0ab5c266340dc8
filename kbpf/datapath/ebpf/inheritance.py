"""What a kbpf of an older layout left that carries traffic: the flows of clients elsewhere.

Its programs and maps go once ours are in force. Before that its flows become ours, since the middle of a connection
without a row is left alone, and so lost. Called by `programs`, before ours are attached and again before the others
go: in between both kinds are in force.
"""

from contextlib import closing
from pathlib import Path

from kbpf.datapath.ebpf.layout import FLOWS, FLOWS_SINCE, LAYOUT_VERSION
from kbpf.datapath.ebpf.maps import BpfMap
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import FlowKey, FlowValue

FOREIGN_ID = 2**32 - 1
"""Never given: ids of the older layout may be other services' and backends' now."""

FlowMap = BpfMap[FlowKey, FlowValue]


def take_flows(pins: Pins) -> None:
    """Raises OSError or MapError."""
    for folder in pins.other_versions():
        pin = folder / pins.maps.name / FLOWS.name
        if _is_readable(folder) and pin.exists():
            with closing(_opened(pin)) as before, closing(_opened(pins.map(FLOWS.name))) as ours:
                _copy(before, ours)


def _opened(pin: Path) -> FlowMap:
    return BpfMap.open(FLOWS, pin)


def _is_readable(folder: Path) -> bool:
    version = folder.name.removeprefix("v")
    return version.isdecimal() and FLOWS_SINCE <= int(version) < LAYOUT_VERSION


def _copy(before: FlowMap, ours: FlowMap) -> None:
    there = ours.entries().keys()
    for rows in before.batches():
        ours.update({key: _inherited(row) for key, row in rows.items() if key not in there})


def _inherited(flow: FlowValue) -> FlowValue:
    """The connection goes on; a new one, or the next datagram, chooses anew. No backend id: a refusal."""
    return flow._replace(service_id=FOREIGN_ID, backend_id=flow.backend_id and FOREIGN_ID)
