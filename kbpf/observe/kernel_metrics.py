"""Metrics that the kernel counts: they are read when somebody asks, in the thread of whoever asks.

The readers come from outside and must be safe to call from any thread; one that cannot read answers nothing.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

RULE_COUNTERS = {
    "ct_state_invalid_dropped_pkts": ("ct_state_invalid_dropped", "Packets that rules dropped as INVALID"),
    "localhost_nps_accepted_pkts": ("localhost_nodeports_accepted", "New flows to node ports on 127.0.0.1"),
}
"""The metrics of the counters that rules name."""


class KernelReaders(msgspec.Struct, frozen=True):
    """`hook_results`: calls of the eBPF hooks, by how they ended. `packet_results`: the same of packets from elsewhere.
    `conntrack`: entries, room for them, and entries that could not be made.
    `rule_counters`: packets, by the name of the counter that rules refer to."""

    hook_results: Callable[[], Mapping[str, int]]
    packet_results: Callable[[], Mapping[str, int]]
    conntrack: Callable[[], tuple[int, int, int] | None]
    rule_counters: Callable[[], Mapping[str, int]]


class KernelCollector(Collector):
    def __init__(self, readers: KernelReaders) -> None:
        self._readers = readers

    def describe(self) -> list[Metric]:
        """Registering must not read."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield _by_reason("kbpf_hook_results", "Calls of the eBPF hooks by how they ended", self._readers.hook_results())
        yield _by_reason(
            "kbpf_packet_results", "Packets from elsewhere by what became of them", self._readers.packet_results()
        )
        if state := self._readers.conntrack():
            entries, room, failures = state
            yield GaugeMetricFamily("kbpf_conntrack_entries", "Tracked connections", entries)
            yield GaugeMetricFamily("kbpf_conntrack_max_entries", "Connections that can be tracked", room)
            lost = "New connections whose packet was lost, because another one just like it was being recorded"
            yield CounterMetricFamily("kbpf_conntrack_insert_failed", lost, failures)
        packets = self._readers.rule_counters()
        for counter, (name, text) in RULE_COUNTERS.items():
            yield CounterMetricFamily(f"kubeproxy_iptables_{name}_packets", text, packets.get(counter, 0))


def _by_reason(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    metric = CounterMetricFamily(name, text, labels=["reason"])
    for reason, count in counts.items():
        metric.add_metric([reason], count)
    return metric
