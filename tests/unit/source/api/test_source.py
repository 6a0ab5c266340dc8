"""All resources together, the wait for the Node, and how the source ends the daemon."""

import queue
from random import Random

from kbpf.clock import FakeClock
from kbpf.errors import ApiFailure, RestartNeeded
from kbpf.model.events import Event, Kind, NodeChanged, SliceChanged, SourceFailed, Synced
from kbpf.source.api.source import ApiSource
from tests.api_answers import bookmark, line_of, node_tree, page_of, slice_tree, tree
from tests.scripted_transport import ScriptedTransport, waiting_by

NODE = node_tree("n1", "192.168.60.11")
END = bookmark("9", ends_list=True)


class Rig:
    """A source that is stopped when all its scripts are over."""

    def __init__(
        self, nodes: list[object], services: object = None, slices: object = None, *, needs_pod_ranges: bool = False
    ) -> None:
        self.clock = FakeClock()
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.transport = ScriptedTransport(
            {"services": [services or [END]], "endpointslices": [slices or [END]], "nodes": nodes}, self.ended.put
        )
        self.source = ApiSource(
            self.transport,
            "https://10.96.0.1",
            "n1",
            self.clock,
            Random(7),
            needs_pod_ranges=needs_pod_ranges,
            wait=waiting_by(self.clock),
        )
        self.events: list[Event | SourceFailed] = []

    def run(self, *resources: str) -> None:
        """Until the scripts of `resources` are over."""
        self.source.start(self.events.append)
        missing = set(resources or self.transport.scripts)
        while missing:
            missing.discard(self.ended.get(timeout=10))
        self.source.stop()

    @property
    def failures(self) -> list[str]:
        return [str(event.error) for event in self.events if isinstance(event, SourceFailed)]


def test_everything_is_delivered_and_each_kind_is_synced_once():
    rig = Rig([page_of(NODE), [line_of("ADDED", NODE), END]], [line_of("ADDED", tree("web")), END])
    rig.run()
    assert {event.kind for event in rig.events if isinstance(event, Synced)} == set(Kind)
    assert len(rig.events) == 5
    assert rig.transport.asked["nodes"][0].query["fieldSelector"] == "metadata.name=n1"


def test_the_node_is_told_before_the_large_lists_begin():
    rig = Rig([page_of(NODE), [line_of("ADDED", NODE), END]], [line_of("ADDED", tree("web")), END])
    rig.run()
    assert [type(event) for event in rig.events[:2]] == [NodeChanged, Synced]
    assert rig.events[1] == Synced(Kind.NODE)


def test_a_node_that_does_not_come_holds_no_list_up_for_long():
    rig = Rig([page_of()] * 1000)
    rig.run("services", "endpointslices")
    assert {event.kind for event in rig.events if isinstance(event, Synced)} >= {Kind.SERVICE, Kind.ENDPOINT_SLICE}


def test_the_node_is_asked_for_once_a_second_and_synced_only_when_it_is_there():
    rig = Rig([page_of(), ApiFailure("away"), page_of(node_tree("n1")), page_of(NODE), [line_of("ADDED", NODE), END]])
    rig.run()
    (place,) = [index for index, event in enumerate(rig.events) if isinstance(event, NodeChanged)]
    assert Synced(Kind.NODE) in rig.events[place:]
    assert len(rig.transport.asked["nodes"]) >= 5


def test_a_node_without_the_pod_ranges_that_are_needed_ends_the_daemon():
    rig = Rig([page_of(NODE)] * 1000, needs_pod_ranges=True)
    rig.source.start(rig.events.append)
    for thread in rig.source._threads:
        if thread.name == "watch-nodes":
            thread.join(10)
    rig.source.stop()
    assert rig.failures == ["Node n1: no spec.podCIDRs, which --detect-local-mode=NodeCIDR needs"]
    assert Synced(Kind.NODE) not in rig.events


def test_a_node_with_another_address_ends_the_daemon():
    moved = node_tree("n1", "192.168.60.21", version="10")
    rig = Rig([page_of(NODE), [line_of("ADDED", NODE), END, line_of("MODIFIED", moved)]])
    rig.run()
    (failure,) = [event for event in rig.events if isinstance(event, SourceFailed)]
    assert isinstance(failure.error, RestartNeeded)
    assert "changed from 192.168.60.11 to 192.168.60.21" in str(failure.error)


def test_a_deleted_node_ends_the_daemon():
    rig = Rig([page_of(NODE), [line_of("ADDED", NODE), END, line_of("DELETED", NODE)]])
    rig.run()
    assert "Node n1 was deleted" in rig.failures[0]


def test_a_node_that_only_changes_its_labels_does_not():
    labelled = node_tree("n1", "192.168.60.11", version="10")
    labelled["metadata"]["labels"] = {"topology.kubernetes.io/zone": "b"}
    rig = Rig([page_of(NODE), [line_of("ADDED", NODE), END, line_of("MODIFIED", labelled)]])
    rig.run()
    assert rig.failures == []
    assert len([event for event in rig.events if isinstance(event, NodeChanged)]) == 2


def test_the_way_to_the_api_server_is_kept():
    api = tree("kubernetes", namespace="default", spec={"clusterIP": "10.96.0.1", "ports": [{"port": 443}]})
    full = slice_tree("kubernetes", "192.168.60.10", service="kubernetes", namespace="default")
    empty = slice_tree("kubernetes", service="kubernetes", namespace="default", version="10")
    services = [line_of("ADDED", api), END]

    def slices():
        while not any(isinstance(event, Synced) and event.kind is Kind.SERVICE for event in rig.events):
            pass  # the other thread is about to deliver it
        yield from (line_of("ADDED", full), END, line_of("MODIFIED", empty))

    rig = Rig([page_of(NODE), [line_of("ADDED", NODE), END]], services, slices())
    rig.run()
    assert len([event for event in rig.events if isinstance(event, SliceChanged)]) == 1
