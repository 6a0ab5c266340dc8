"""The connection tracking table, fake and real: what is listed, and what a deletion takes away."""

import socket
from collections.abc import Callable, Iterator, Sequence

import pytest

from kbpf.host.conntrack import Conntrack, KernelConntrack, UdpEntry, network_order
from kbpf.host.fake import FakeConntrack
from kbpf.model.address import Address, Family
from tests.conntrack_entries import TrackedFlow, create, entry_of

DNS = TrackedFlow("10.42.1.9", 40001, "10.96.0.10", 53, "10.42.2.5", 5353)
DNS_AGAIN = DNS._replace(client_port=40002, reply_source="10.42.2.6")
DNS_V6 = TrackedFlow("fd42:1::9", 40001, "fd96::10", 53, "fd42:2::5", 5353)


class Table:
    """The subject, and the way to put flows into it."""

    def __init__(self, conntrack: Conntrack, track: Callable[[Sequence[TrackedFlow]], None]) -> None:
        self.conntrack = conntrack
        self.track = track

    def list(self, family: Family = Family.IPV4) -> list[UdpEntry]:
        return sorted(self.conntrack.list_udp(family))


@pytest.fixture(params=["fake", pytest.param("kernel", marks=pytest.mark.root)])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    if request.param == "fake":
        yield fake_table()
        return
    with request.getfixturevalue("namespace").entered():
        yield Table(KernelConntrack(), create)


def fake_table() -> Table:
    fake = FakeConntrack()

    def track(flows: Sequence[TrackedFlow]) -> None:
        fake.entries |= {entry_of(flow) for flow in flows if flow.protocol == socket.IPPROTO_UDP}

    return Table(fake, track)


def seen(entry: UdpEntry) -> tuple[object, ...]:
    return entry[:4]


def test_an_entry_tells_whom_the_client_talks_to_and_who_answers(table: Table):
    table.track([DNS])
    assert [seen(entry) for entry in table.list()] == [
        (network_order(Address("10.96.0.10")), 53, network_order(Address("10.42.2.5")), 5353)
    ]


def test_each_family_is_listed_alone(table: Table):
    table.track([DNS, DNS_V6])
    assert [seen(entry) for entry in table.list(Family.IPV6)] == [
        (network_order(Address("fd96::10")), 53, network_order(Address("fd42:2::5")), 5353)
    ]
    assert len(table.list(Family.IPV4)) == 1


def test_only_udp_is_listed(table: Table):
    table.track([DNS, DNS._replace(protocol=socket.IPPROTO_TCP)])
    assert len(table.list()) == 1


def test_an_empty_table_lists_nothing(table: Table):
    assert table.list() == []


def test_a_deletion_takes_its_entries_and_no_others(table: Table):
    table.track([DNS, DNS_AGAIN, DNS_V6])
    [first, second] = table.list()
    assert table.conntrack.delete([first]) == 1
    # Not all of it: the seconds that an entry has left go by.
    assert [seen(entry) for entry in table.list()] == [seen(second)]
    assert len(table.list(Family.IPV6)) == 1


def test_both_families_can_be_deleted_at_once(table: Table):
    table.track([DNS, DNS_V6])
    assert table.conntrack.delete([*table.list(), *table.list(Family.IPV6)]) == 2


def test_deleting_nothing_deletes_nothing(table: Table):
    table.track([DNS])
    assert table.conntrack.delete([]) == 0
    assert len(table.list()) == 1


def test_entries_that_ended_meanwhile_are_not_counted_and_are_no_error(table: Table):
    flows = [DNS._replace(client_port=port) for port in range(10000, 11000)]
    table.track(flows)
    entries = table.list()
    assert table.conntrack.delete(entries[:400]) == 400
    assert table.conntrack.delete(entries) == 600


def test_entries_can_be_deleted_while_they_are_listed(table: Table):
    table.track([DNS._replace(client_port=port) for port in range(10000, 12000)])
    assert table.conntrack.delete(table.conntrack.list_udp(Family.IPV4)) == 2000
    assert table.list() == []
