import msgspec

from kbpf.demo.exchange import Answer, Order, Request, StreamReport, spell
from kbpf.demo.place import Place


def test_endpoints_are_spelled_with_brackets_around_ipv6_only():
    assert spell("10.0.0.1", 80) == "10.0.0.1:80"
    assert spell("fd00::1", 80) == "[fd00::1]:80"
    assert spell("::ffff:10.0.0.1", 80) == "[::ffff:10.0.0.1]:80"


def test_requests_and_answers_travel_as_plain_fields():
    request = Request("10.96.0.10", 53, "udp", "one-socket", count=3, source_address="10.42.1.5")
    answer = Answer(error="timeout", latency_us=1500.0)
    order = Order("requests", Place("/run/netns/client", "/sys/fs/cgroup/client"), request)
    report = StreamReport(3, [answer], {"10.42.1.10:80": 2})
    for value in (order, answer, report):
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
