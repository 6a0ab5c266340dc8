"""Connections by Service and backend: a metric for whoever asks for it, of so many series at most.

Who was first keeps its series until it is gone; all that find no room are one series together. Read when somebody asks
for metrics, in the thread of whoever asks.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

OTHERS = ("other", "other")


class ConnectionCollector(Collector):
    def __init__(self, read: Callable[[], Mapping[tuple[str, str], int]], most: int) -> None:
        """`read` counts by Service and backend."""
        self._read = read
        self._most = most
        self._shown: dict[tuple[str, str], None] = {}

    def describe(self) -> list[Metric]:
        """Registering must not read."""
        return []

    def collect(self) -> Iterator[Metric]:
        counts = self._read()
        self._choose(counts)
        metric = CounterMetricFamily(
            "kbpf_connections", "Connections that eBPF sent to a backend", labels=["service", "backend"]
        )
        others = 0
        for key, count in counts.items():
            if key in self._shown:
                metric.add_metric(key, count)
            else:
                others += count
        if others:
            metric.add_metric(OTHERS, others)
        yield metric

    def _choose(self, counts: Mapping[tuple[str, str], int]) -> None:
        self._shown = {key: None for key in self._shown if key in counts}
        for key in counts:
            if len(self._shown) >= self._most:
                return
            self._shown.setdefault(key)
