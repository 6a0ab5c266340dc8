"""Forgets flows that are over, and listens for clients whose packets wait for the masquerade rule.

The programs notice themselves when a flow has ended and another begins; rows are collected so that the map holds what
is alive, and with the time-outs that kube-proxy sets for connection tracking. `server` runs the thread; it shares
nothing with the control thread but the maps.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from kbpf.clock import Clock
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.shapes import FlowDirection, FlowKey, FlowSeen, FlowValue, Reason
from kbpf.errors import MapError

log = logging.getLogger(__name__)

TCP = 6
LISTEN_S = 0.25
COLLECT_S = 10.0


class Flows(Protocol):
    """The map of flows."""

    def batches(self) -> Iterator[dict[FlowKey, FlowValue]]: ...

    def lookup(self, key: FlowKey) -> FlowValue | None: ...

    def delete(self, keys: Iterable[FlowKey]) -> None: ...


class FlowTimeouts(msgspec.Struct, frozen=True):
    """Seconds without a packet, by the state of a flow; the ones without an option are the kernel's."""

    established_s: int = 86400
    close_wait_s: int = 3600
    udp_s: int = 30
    udp_stream_s: int = 120
    opening_s: int = 120
    closed_s: int = 120
    reset_s: int = 10


def collect(flows: Flows, now_s: int, timeouts: FlowTimeouts) -> int:
    """Delete what is over; returns how many rows that were."""
    deleted = 0
    for rows in flows.batches():
        over = [key for key, row in rows.items() if _may_be_over(row, key, now_s, timeouts)]
        # A last look, since packets go on meanwhile: at both rows, which together know the state.
        gone = [key for key in over if _is_over(flows, key, now_s, timeouts)]
        flows.delete(gone)
        deleted += len(gone)
    return deleted


def other_key(key: FlowKey, row: FlowValue) -> FlowKey:
    """The row of the other direction."""
    if key.direction == FlowDirection.FROM_CLIENT:
        back = (row.backend_address, key.source, row.backend_port, row.translated_port)
        return FlowKey(*back, key.protocol, FlowDirection.FROM_BACKEND)
    there = (key.destination, row.frontend_address, row.client_port, row.frontend_port)
    return FlowKey(*there, key.protocol, FlowDirection.FROM_CLIENT)


def _may_be_over(row: FlowValue, key: FlowKey, now_s: int, timeouts: FlowTimeouts) -> bool:
    """Without asking for the other row: idle for longer than any state of this one allows."""
    least_s = timeouts.reset_s if key.protocol == TCP else timeouts.udp_s
    return now_s - row.last_seen_s > least_s


def _is_over(flows: Flows, key: FlowKey, now_s: int, timeouts: FlowTimeouts) -> bool:
    row = flows.lookup(key)
    if row is None:
        return False
    if key.direction == FlowDirection.ANSWERS:
        return now_s - row.last_seen_s > timeouts.udp_stream_s
    other = flows.lookup(other_key(key, row))
    last_seen_s = max(row.last_seen_s, other.last_seen_s) if other else row.last_seen_s
    return now_s - last_seen_s > _timeout_s(key, row, other, timeouts)


def _timeout_s(key: FlowKey, row: FlowValue, other: FlowValue | None, timeouts: FlowTimeouts) -> int:
    seen = (row.seen, other.seen if other else 0)
    from_client, from_backend = seen if key.direction == FlowDirection.FROM_CLIENT else seen[::-1]
    is_answered = from_backend & FlowSeen.PACKET
    if key.protocol != TCP:
        return timeouts.udp_stream_s if is_answered else timeouts.udp_s
    if (from_client | from_backend) & FlowSeen.RESET:
        return timeouts.reset_s
    if from_client & from_backend & FlowSeen.FIN:
        return timeouts.closed_s
    if (from_client | from_backend) & FlowSeen.FIN:
        return timeouts.close_wait_s
    return timeouts.established_s if is_answered else timeouts.opening_s


class FlowCollector:
    def __init__(
        self,
        open_maps: Callable[[], Maps | None],
        timeouts: FlowTimeouts,
        clock: Clock,
        masquerade_wanted: Callable[[], None],
    ) -> None:
        """`masquerade_wanted` is called when packets were dropped because the rule is not there yet."""
        self._open_maps, self._timeouts, self._clock = open_maps, timeouts, clock
        self._masquerade_wanted = masquerade_wanted
        self._dropped = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow-collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                maps = self._open_maps()
                if maps is not None:
                    self._watch(maps)
            except MapError as error:
                log.debug(f"the maps are not there: {error}")
            self._stopping.wait(LISTEN_S)

    def _watch(self, maps: Maps) -> None:
        """One period; then the maps are opened anew, since a full sync may have replaced them."""
        try:
            ends = self._clock.monotonic() + COLLECT_S
            while self._clock.monotonic() < ends and not self._stopping.wait(LISTEN_S):
                self._listen(maps)
            collect(maps.flows, int(self._clock.monotonic()), self._timeouts)
        finally:
            maps.close()

    def _listen(self, maps: Maps) -> None:
        dropped = maps.packet_stats.count(Reason.NO_MASQUERADE)
        if dropped > self._dropped:
            self._masquerade_wanted()
        self._dropped = dropped
