"""Which flows are over: by state and time, judged by both rows, and by none that changed meanwhile."""

import pytest

from kbpf.datapath.ebpf.collector import FlowTimeouts, collect, other_key
from kbpf.datapath.ebpf.fake import FakeMap
from kbpf.datapath.ebpf.layout import FLOWS
from kbpf.datapath.ebpf.shapes import FlowDirection, FlowKey, FlowSeen, FlowValue
from kbpf.model.address import Address, packed

CLIENT, VIP, POD = (packed(Address(text)) for text in ("198.51.100.9", "203.0.113.5", "10.42.1.5"))
TCP, UDP = 6, 17
PACKET, SYN, FIN, RESET = FlowSeen.PACKET, FlowSeen.PACKET | FlowSeen.SYN, FlowSeen.FIN, FlowSeen.RESET
NOW = 1_000_000
TIMEOUTS = FlowTimeouts()


def flow(
    client_seen: int, backend_seen: int, *, idle_s: int, backend_idle_s: int | None = None, protocol: int = TCP
) -> dict[FlowKey, FlowValue]:
    """Both rows of a flow."""
    there = FlowKey(CLIENT, VIP, 40000, 80, protocol, FlowDirection.FROM_CLIENT)
    value = FlowValue(VIP, POD, 80, 8080, 40000, 40000, 1, 1, NOW - idle_s, client_seen, 0, 0)
    back_idle_s = idle_s if backend_idle_s is None else backend_idle_s
    back = value._replace(seen=backend_seen, last_seen_s=NOW - back_idle_s)
    return {there: value, other_key(there, value): back}


def left(rows: dict[FlowKey, FlowValue]) -> int:
    held = FakeMap(FLOWS)
    held.update(rows)
    collect(held, NOW, TIMEOUTS)
    return len(held.entries())


def test_the_rows_of_a_flow_lead_to_each_other():
    for key, value in flow(SYN, SYN, idle_s=0).items():
        other = other_key(key, value)
        assert other in flow(SYN, SYN, idle_s=0)
        assert other_key(other, value) == key


@pytest.mark.parametrize(
    ("client_seen", "backend_seen", "protocol", "timeout_s"),
    [
        (SYN, 0, TCP, 120),
        (SYN, SYN, TCP, 86400),
        (SYN | FIN, SYN, TCP, 3600),
        (SYN, SYN | FIN, TCP, 3600),
        (SYN | FIN, SYN | FIN, TCP, 120),
        (SYN | FIN, SYN | RESET, TCP, 10),
        (SYN | RESET, SYN, TCP, 10),
        (PACKET, 0, UDP, 30),
        (PACKET, PACKET, UDP, 120),
    ],
)
def test_a_flow_is_over_after_the_timeout_of_its_state(
    client_seen: int, backend_seen: int, protocol: int, timeout_s: int
):
    assert left(flow(client_seen, backend_seen, idle_s=timeout_s, protocol=protocol)) == 2
    assert left(flow(client_seen, backend_seen, idle_s=timeout_s + 1, protocol=protocol)) == 0


def test_packets_of_either_side_keep_a_flow_alive():
    assert left(flow(PACKET, PACKET, idle_s=1000, backend_idle_s=1, protocol=UDP)) == 2
    assert left(flow(PACKET, PACKET, idle_s=1, backend_idle_s=1000, protocol=UDP)) == 2


def test_a_row_that_is_alone_is_judged_alone():
    [there, _] = flow(SYN, SYN, idle_s=121).items()
    assert left(dict([there])) == 0


def test_a_backend_answers_for_as_long_as_an_udp_stream():
    key = FlowKey(POD, bytes(16), 8080, 0, UDP, FlowDirection.ANSWERS)
    [value, _] = flow(PACKET, 0, idle_s=100, protocol=UDP).values()
    assert left({key: value}) == 1
    assert left({key: value._replace(last_seen_s=NOW - 121)}) == 0


def test_a_packet_that_comes_while_we_look_saves_its_flow():
    rows = flow(PACKET, PACKET, idle_s=1000, protocol=UDP)

    class Busy(FakeMap):
        """The flow goes on between the batch and the last look."""

        def batches(self):
            for batch in super().batches():
                self.update({key: value._replace(last_seen_s=NOW) for key, value in batch.items()})
                yield batch

    held = Busy(FLOWS)
    held.update(rows)
    assert collect(held, NOW, TIMEOUTS) == 0
    assert len(held.entries()) == 2
