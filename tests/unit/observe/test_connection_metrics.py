"""Connections by Service and backend: never more series than were asked for, and none goes down while it is shown."""

from prometheus_client import CollectorRegistry

from kbpf.observe.connection_metrics import ConnectionCollector


class Rig:
    def __init__(self, most: int) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        self.registry = CollectorRegistry()
        self.registry.register(ConnectionCollector(lambda: self.counts, most))

    def scrape(self) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["service"], sample.labels["backend"]): sample.value
            for family in self.registry.collect()
            for sample in family.samples
        }


def test_each_backend_of_each_service_has_a_series():
    rig = Rig(10)
    rig.counts = {("shop/web:http", "10.42.1.5:8080"): 7, ("shop/dns:udp", "10.42.1.6:53"): 2}
    assert rig.scrape() == rig.counts


def test_what_finds_no_room_is_one_series_and_who_was_first_stays():
    rig = Rig(2)
    rig.counts = {("a/a", "1"): 1, ("b/b", "2"): 2}
    rig.scrape()
    rig.counts = {("c/c", "3"): 50, ("d/d", "4"): 5, ("b/b", "2"): 3, ("a/a", "1"): 1}
    assert rig.scrape() == {("a/a", "1"): 1, ("b/b", "2"): 3, ("other", "other"): 55}


def test_the_series_of_what_is_gone_is_somebody_else_s():
    rig = Rig(1)
    rig.counts = {("a/a", "1"): 1}
    rig.scrape()
    rig.counts = {("b/b", "2"): 2}
    assert rig.scrape() == {("b/b", "2"): 2}


def test_registering_reads_nothing():
    def read() -> dict[tuple[str, str], int]:
        raise AssertionError("nobody asked")

    CollectorRegistry().register(ConnectionCollector(read, 1))
