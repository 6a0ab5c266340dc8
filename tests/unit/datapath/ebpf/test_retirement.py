"""A datapath that gives up its services takes on nothing new and goes with its last connection."""

import pytest

from kbpf.clock import FakeClock
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.collector import FlowTimeouts, other_key
from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.fake import FakePrograms
from kbpf.datapath.ebpf.node import NodeSettings
from kbpf.datapath.ebpf.shapes import FlowDirection, FlowKey, FlowSeen, FlowValue
from kbpf.errors import MapError
from kbpf.model.address import Address, packed
from tests.builders import endpoint_slice, service, table_of

CLIENT, VIP, POD = (packed(Address(text)) for text in ("198.51.100.9", "203.0.113.5", "10.42.1.5"))
TABLE = table_of(service(), endpoint_slice("web", "10.42.1.5"))
TCP, UDP = 6, 17


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.programs = FakePrograms(serves_packets=True)
        node, timeouts = NodeSettings(), FlowTimeouts(established_s=600)
        self.ebpf = EbpfDatapath(self.programs, DeferSettings(), dict, node, self.clock, timeouts)
        self.ebpf.sync(TABLE, frozenset(TABLE.services), full=True)

    def add_flow(self, protocol: int) -> None:
        """An answered one, seen now."""
        there = FlowKey(CLIENT, VIP, 40000, 80, protocol, FlowDirection.FROM_CLIENT)
        now_s = int(self.clock.monotonic())
        value = FlowValue(VIP, POD, 80, 8080, 40000, 40000, 1, 1, now_s, FlowSeen.PACKET, 0, 0)
        assert self.programs.maps is not None
        self.programs.maps.flows.update({there: value, other_key(there, value): value})


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_without_connections_it_is_gone_at_once(rig: Rig):
    assert rig.ebpf.retire()
    assert rig.programs.maps is None


def test_where_nothing_is_there_is_nothing_to_wait_for(rig: Rig):
    rig.ebpf.cleanup()
    assert rig.ebpf.retire()


def test_what_cannot_be_read_is_taken_away_whole(rig: Rig):
    """Programs that stay in force with maps that nobody can open would lead everybody astray."""
    rig.add_flow(TCP)
    rig.programs.open_failure = MapError("frontends: key size 20 instead of 24")
    assert rig.ebpf.retire()
    assert (rig.programs.maps, rig.programs.attached) == (None, False)


def test_a_connection_from_elsewhere_keeps_the_packet_programs_and_no_service(rig: Rig):
    rig.add_flow(TCP)
    assert not rig.ebpf.retire()
    assert not rig.programs.attached
    assert rig.programs.maps is not None
    assert not rig.programs.maps.frontends.entries()
    assert not rig.programs.maps.services.entries()
    assert len(rig.programs.maps.flows.entries()) == 2


def test_it_goes_when_the_last_connection_is_over(rig: Rig):
    rig.add_flow(TCP)
    assert not rig.ebpf.retire()
    rig.clock.advance(601)
    assert rig.ebpf.retire()
    assert rig.programs.maps is None


def test_datagrams_keep_nothing(rig: Rig):
    rig.add_flow(UDP)
    assert rig.ebpf.retire()


def test_it_can_come_back_to_its_connections(rig: Rig):
    rig.add_flow(TCP)
    rig.ebpf.retire()
    rig.ebpf.sync(TABLE, frozenset(TABLE.services), full=True)
    assert rig.programs.attached
    assert rig.programs.maps is not None
    assert rig.programs.maps.frontends.entries()
    assert len(rig.programs.maps.flows.entries()) == 2
