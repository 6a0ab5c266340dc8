"""The control loop: many events become one sync, failures are retried, a stop is obeyed. Nothing sleeps."""

import pytest

from kbpf.clock import FakeClock
from kbpf.control import ControlLoop
from kbpf.errors import KbpfError, MapError, RestartNeeded, RulesLocked
from kbpf.host.fake import FakeConntrack
from kbpf.host.udp_cleanup import UdpCleanup
from kbpf.inbox import Inbox
from kbpf.inspection import InspectionSchedule
from kbpf.model.events import Kind, SourceFailed, Synced
from kbpf.observe.health import HealthTracker
from kbpf.observe.metrics import Metrics
from kbpf.observe.service_health import ServiceHealthPorts
from kbpf.proxier import Proxier
from kbpf.publisher import Publisher
from kbpf.runner import BoundedFrequencyRunner, RunnerIntervals
from kbpf.tracking.trackers import Trackers
from tests.builders import NODE_NAME, changed, endpoint_slice, service
from tests.logs import capture_logs
from tests.recording import RecordingDatapath

SYNC_PERIOD_S = 30
INTERVALS = RunnerIntervals(min_interval_s=1, retry_interval_s=SYNC_PERIOD_S, max_interval_s=3600)


class StoppingDatapath(RecordingDatapath):
    """Stops the loop from inside a sync, as a signal would."""

    loop: ControlLoop | None = None

    def sync(self, *args, **kwargs):
        assert self.loop
        self.loop.stop()
        return super().sync(*args, **kwargs)


class Rig:
    def __init__(self, datapath: RecordingDatapath | None = None) -> None:
        self.clock = FakeClock()
        self.datapath = datapath or RecordingDatapath()
        self.health = HealthTracker(self.clock, timeout_s=60)
        self.runner = BoundedFrequencyRunner(INTERVALS, self.clock)
        udp_cleanup = UdpCleanup(FakeConntrack(), self.clock)
        self.metrics = Metrics()
        self.fallbacks: list[str] = []
        ports = ServiceHealthPorts(self.health, lambda service, port, reason: None)
        self.publisher = Publisher(self.health, self.metrics, ports, lambda own: {}, self.fallbacks.append, self.clock)
        self.made = 0
        proxier = Proxier(NODE_NAME, Trackers(NODE_NAME), self._make_datapath, udp_cleanup, self.publisher.synced)
        inspections = InspectionSchedule(SYNC_PERIOD_S, self.clock)
        self.loop = ControlLoop(Inbox(), proxier, self.runner, inspections, self.publisher, lambda name: INTERVALS)

    def _make_datapath(self, own: object) -> RecordingDatapath:
        self.made += 1
        return self.datapath

    def lists_complete(self) -> None:
        for kind in Kind:
            self.loop.put(Synced(kind))


def test_all_events_of_the_initial_lists_become_one_sync_and_a_stop_ends_the_loop():
    datapath = StoppingDatapath()
    rig = Rig(datapath)
    datapath.loop = rig.loop
    rig.loop.put(changed(service("web")))
    rig.loop.put(changed(service("api", cluster_ips=["10.96.0.11"])))
    rig.lists_complete()
    rig.loop.run()
    assert len(datapath.syncs) == 1
    assert len(datapath.held) == 2
    assert rig.health.snapshot().is_healthy


def test_a_stop_before_the_lists_are_complete_ends_the_loop_without_a_sync():
    rig = Rig()
    rig.loop.put(changed(service()))
    rig.loop.stop()
    rig.loop.run()
    assert (rig.made, rig.datapath.syncs) == (0, [])
    assert not rig.health.snapshot().is_healthy


@pytest.mark.parametrize("missing", Kind)
def test_nothing_is_made_or_written_before_every_list_is_complete(missing: Kind):
    rig = Rig()
    rig.loop.put(changed(service("web")))
    rig.loop.put(changed(endpoint_slice("web", "10.42.1.5")))
    for kind in set(Kind) - {missing}:
        rig.loop.put(Synced(kind))
    rig.clock.advance(7200)
    rig.loop.stop()
    rig.loop.run()
    assert (rig.made, rig.datapath.syncs) == (0, [])


def test_a_failed_sync_is_counted_and_does_not_move_the_time_of_the_last_good_one():
    rig = Rig()
    rig.loop.sync()
    rig.clock.advance(10)
    rig.datapath.failures.append(MapError("slots: no room"))
    with capture_logs():
        rig.loop.sync()
    value = rig.metrics.registry.get_sample_value
    assert value("kbpf_sync_failures_total") == 1
    assert value("kubeproxy_sync_proxy_rules_last_timestamp_seconds", {"ip_family": "IPv4"}) == rig.clock.now() - 10
    assert value("kubeproxy_sync_proxy_rules_duration_seconds_count", {"ip_family": "IPv4"}) == 2


def test_a_failed_sync_is_one_line_and_a_retry():
    rig = Rig()
    rig.lists_complete()
    rig.loop.stop()
    rig.loop.run()
    rig.datapath.failures.append(MapError("slots: no room"))
    with capture_logs() as logs:
        rig.loop.sync()
    assert logs == [{"event": "sync failed, trying again in 30 s: slots: no room", "log_level": "error"}]
    assert rig.runner.seconds_until_due() == 30
    assert rig.health.snapshot().families == {}


def test_a_source_that_cannot_go_on_ends_the_loop_with_its_error():
    rig = Rig()
    rig.lists_complete()
    rig.loop.put(SourceFailed(RestartNeeded("Node n1 was deleted")))
    with pytest.raises(RestartNeeded, match="Node n1 was deleted"):
        rig.loop.run()
    assert rig.datapath.syncs == []


def test_a_defect_of_ours_does_not_end_the_loop():
    rig = Rig()
    rig.datapath.failures.append(ZeroDivisionError())
    with capture_logs() as logs:
        rig.loop.sync()
    assert logs[0]["exc_info"]
    assert rig.runner.seconds_until_due() == 30


def fulls(rig: Rig) -> list[bool]:
    return [full for _, full in rig.datapath.syncs]


def test_an_inspection_is_a_full_sync_when_that_is_cheap_and_no_news():
    rig = Rig()
    rig.loop.sync()
    rig.clock.advance(SYNC_PERIOD_S)
    with capture_logs() as logs:
        rig.loop.sync()
    assert fulls(rig) == [True, True]
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []


def test_an_inspection_that_repaired_something_is_news():
    rig = Rig()
    rig.loop.sync()
    rig.clock.advance(SYNC_PERIOD_S)
    rig.datapath.repairs = 3
    with capture_logs() as logs:
        rig.loop.sync()
    assert [(entry["log_level"], "3 writes" in entry["event"]) for entry in logs] == [("info", True)]


@pytest.fixture
def dear() -> Rig:
    """A synced datapath whose full syncs take a minute."""
    rig = Rig()
    rig.datapath.duration_s = 60
    rig.loop.sync()
    rig.clock.advance(SYNC_PERIOD_S)
    return rig


def test_an_inspection_is_a_partial_sync_when_a_full_one_is_dear_and_nothing_is_lost(dear: Rig):
    dear.loop.sync()
    assert fulls(dear) == [True, False]


def test_what_is_lost_is_named_and_put_back_by_a_full_sync_whatever_it_costs(dear: Rig):
    dear.datapath.missing = ("IPv4 nat: our chains", "IPv6 nat: our chains")
    with capture_logs() as logs:
        dear.loop.sync()
    assert fulls(dear) == [True, True]
    assert logs[-1] == {
        "event": "another program took away: IPv4 nat: our chains; IPv6 nat: our chains; it is back",
        "log_level": "warning",
    }


def test_a_datapath_that_says_what_was_gone_is_not_repeated(dear: Rig):
    dear.datapath.missing = ("IPv4 nat: our chains",)
    dear.datapath.warnings = ("IPv4: put back: nat KUBE-SERVICES",)
    with capture_logs() as logs:
        dear.loop.sync()
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "IPv4: put back: nat KUBE-SERVICES"
    ]


def test_a_stream_of_changes_does_not_keep_inspections_away(dear: Rig):
    dear.datapath.missing = ("IPv4 nat: our chains",)
    dear.runner.request()
    dear.loop.sync()
    assert fulls(dear) == [True, True]


def test_a_sync_between_inspections_asks_for_nothing_lost(dear: Rig):
    dear.loop.sync()
    dear.datapath.missing = ("IPv4 nat: our chains",)
    dear.runner.request()
    dear.loop.sync()
    assert fulls(dear) == [True, False, False]


@pytest.fixture
def stepping() -> Rig:
    """A synced datapath that is looked at in steps, at the moment when that begins."""
    rig = Rig()
    for kind in Kind:
        rig.loop._take(Synced(kind))
    rig.loop.sync()
    rig.datapath.steps = [(), ("entries of slots",), ()]
    rig.clock.advance(SYNC_PERIOD_S)
    rig.loop.sync()
    return rig


def test_where_a_look_comes_in_steps_there_is_no_full_sync_until_one_finds_something(stepping: Rig):
    stepping.loop._act()
    assert fulls(stepping) == [True, False]
    with capture_logs() as logs:
        stepping.loop._act()
    assert fulls(stepping) == [True, False, True]
    assert logs[-1]["event"] == "another program took away: entries of slots; it is back"
    assert stepping.loop._seconds_until_due() == SYNC_PERIOD_S


def test_a_change_goes_before_the_next_step(stepping: Rig):
    stepping.clock.advance(INTERVALS.min_interval_s)
    stepping.runner.request()
    stepping.loop._act()
    assert fulls(stepping) == [True, False, False]
    assert stepping.loop._seconds_until_due() == 0


def test_a_look_that_found_nothing_ends_by_itself(stepping: Rig):
    stepping.datapath.steps[1] = ()
    for _ in range(len(stepping.datapath.steps) + 1):
        stepping.loop._act()
    assert fulls(stepping) == [True, False]
    assert stepping.loop._seconds_until_due() == SYNC_PERIOD_S


def test_what_a_step_cannot_read_is_looked_at_by_a_full_sync(stepping: Rig):
    def steps():
        raise MapError("slots: lookup failed")
        yield

    stepping.loop._inspections.begin(steps())
    stepping.loop._act()
    assert fulls(stepping) == [True, False, True]


def test_a_held_lock_is_tried_again_after_two_seconds_then_four():
    rig = Rig()
    rig.datapath.failures += [RulesLocked("IPv4: held"), RulesLocked("IPv4: held")]
    waits = []
    for _ in range(2):
        rig.loop.sync()
        waits.append(rig.runner.seconds_until_due())
        rig.clock.advance(waits[-1])
    assert waits == [2, 4]


def test_nothing_is_waited_for_before_the_lists_are_complete():
    rig = Rig()
    rig.clock.advance(7200)
    assert rig.loop._seconds_until_due() is None
    for kind in Kind:
        rig.loop._take(Synced(kind))
    assert rig.loop._seconds_until_due() == 0


def test_a_requested_sync_after_a_good_one_is_partial():
    rig = Rig()
    rig.loop.sync()
    rig.runner.request()
    rig.loop.sync()
    assert [full for _, full in rig.datapath.syncs] == [True, False]


def test_each_datapath_gets_its_own_rhythm():
    rig = Rig()
    rig.loop._intervals = lambda name: RunnerIntervals(0, 5, 7) if name == "recording" else INTERVALS
    rig.loop.sync()
    assert rig.runner.seconds_until_due() == 7


def test_once_waits_for_the_lists_and_syncs():
    rig = Rig()
    rig.loop.put(changed(service()))
    rig.lists_complete()
    assert rig.loop.run_once().services == 1


def test_once_hands_the_failure_to_its_caller():
    rig = Rig()
    rig.lists_complete()
    rig.datapath.failures.append(MapError("slots: no room"))
    with pytest.raises(KbpfError, match="no room"):
        rig.loop.run_once()
