"""How old what this node serves may be: since when nothing was heard, and how long a change has been waiting.

Read when somebody asks for metrics, in the thread of whoever asks.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class StalenessCollector(Collector):
    def __init__(self, silences: Callable[[], Mapping[str, float]], waiting_s: Callable[[], float]) -> None:
        """`silences`: for each resource, the seconds since the API server last spoke of it."""
        self._silences = silences
        self._waiting_s = waiting_s

    def describe(self) -> list[Metric]:
        """Registering must not ask."""
        return []

    def collect(self) -> Iterator[Metric]:
        silence = GaugeMetricFamily(
            "kbpf_source_silence_seconds",
            "Since the API server last spoke of a resource, which it does every minute or two",
            labels=["resource"],
        )
        for resource, seconds in self._silences().items():
            silence.add_metric([resource], seconds)
        yield silence
        words = "How long the oldest change has been waiting for a sync; zero when none is"
        yield GaugeMetricFamily("kbpf_oldest_change_seconds", words, self._waiting_s())
