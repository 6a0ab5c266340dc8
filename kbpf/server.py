"""The composition root: builds every part from the configuration, starts the threads, stops them in reverse.

The main thread becomes the control thread (control.py); sources and the health server have threads of their own. How
datapaths are put together is told in composition.py, how the source is in feed.py.
"""

import gc
import logging
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from types import FrameType

from kbpf.clock import Clock, SystemClock
from kbpf.composition import Background, Choice, choose_datapath, intervals, make_datapath, make_ebpf
from kbpf.config import Config
from kbpf.configuration.loading import Loaded
from kbpf.configuration.watch import ConfigurationWatch
from kbpf.control import ControlLoop
from kbpf.datapath.interface import Datapath
from kbpf.errors import HostError, KbpfError
from kbpf.feed import make_feed
from kbpf.head_start import HeadStart
from kbpf.host.conntrack import KernelConntrack
from kbpf.host.local_ports import gives_out_any
from kbpf.host.process import adjust_oom_score, release_memory
from kbpf.host.sysctl import ConntrackTuning, KernelSysctls, allow_localnet
from kbpf.host.udp_cleanup import UdpCleanup
from kbpf.inbox import Inbox
from kbpf.inspection import InspectionSchedule
from kbpf.model.events import NodeStateChanged
from kbpf.model.objects import Node
from kbpf.node_advice import port_advice, settings_advice
from kbpf.observation import Observation
from kbpf.observe.metrics import Metrics
from kbpf.ownership import claim_node
from kbpf.proxier import Proxier, Status
from kbpf.runner import BoundedFrequencyRunner
from kbpf.tracking.trackers import Trackers

log = logging.getLogger(__name__)

GARBAGE_THRESHOLDS = 100_000, 50, 100
"""Of a process that has started."""


def serve(loaded: Loaded, *, once: bool, force: bool = False) -> None:
    """Run the proxy until a signal, or sync once. Raises KbpfError when it cannot start, or the one sync fails.

    `force`: start even beside another service proxy.
    """
    config, clock = loaded.config, SystemClock()
    signal.signal(signal.SIGTERM, _stop_before_anything_runs)
    metrics = Metrics()
    feed = make_feed(config, clock, metrics.client.asked)
    claim_node(config, force=force)
    inbox = Inbox()
    feed.source.start(inbox.put)  # what comes first waits there while we look at what this node offers
    try:
        choice = choose_datapath(config, clock)
        observation = Observation(config, feed.events, metrics, clock)
        observation.watch_staleness(feed.silences)
        observation.publisher.running(choice.name, choice.fallback_reason, choice.reason)
        loop = _make_loop(inbox, config, choice, observation, clock)
        _stop_on_signals(loop)
        if once:
            log.info(loop.run_once().sentence)
        else:
            _run(loop, observation, loaded, choice.name, feed.background)
    finally:
        inbox.close()
        feed.source.stop()


def _make_loop(inbox: Inbox, config: Config, choice: Choice, observation: Observation, clock: Clock) -> ControlLoop:
    return ControlLoop(
        inbox,
        _make_proxier(config, choice, observation, clock),
        BoundedFrequencyRunner(intervals(config, choice.name), clock),
        InspectionSchedule(config.sync_period_s, clock),
        observation.publisher,
        lambda name: intervals(config, name),
    )


def _make_proxier(config: Config, choice: Choice, observation: Observation, clock: Clock) -> Proxier:
    tuning = ConntrackTuning(config.conntrack, KernelSysctls())
    tuning.run()
    if tuning.refused:
        observation.conntrack_read_only(tuning.refused)

    def publish(status: Status) -> None:
        observation.publisher.synced(status)
        _after_sync(tuning, is_full=status.report.full)

    head_start = HeadStart(lambda own: make_ebpf(config, own, clock))

    def first_datapath(own: Node | None) -> Datapath:
        head_start.wait_for_maps()
        for words in (*settings_advice(config, own), *port_advice(gives_out_any)):
            log.warning(words)
        return make_datapath(choice, config, own, clock)

    return Proxier(
        config.node_name,
        Trackers(config.node_name, clock.now()),
        first_datapath,
        _make_udp_cleanup(config, choice.name, clock),
        publish,
        expects_node=not config.manifests,
        node_known=head_start.begin if choice.name == "ebpf" else lambda own: None,
        found_wrong=observation.problem,
    )


def _make_udp_cleanup(config: Config, datapath_name: str, clock: Clock) -> UdpCleanup:
    if datapath_name != "ebpf":
        return UdpCleanup(KernelConntrack(), clock)
    from kbpf.ebpf_parts import connected_sockets

    return UdpCleanup(KernelConntrack(), clock, connected_sockets(config))


def _after_sync(tuning: ConntrackTuning, *, is_full: bool) -> None:
    _tune_late(tuning)
    if is_full:
        release_memory()  # of all rows, wanted and found: a third of what the process holds at 10,000 Services
    _settle()


@cache
def _settle() -> None:
    """Once: what the initial lists brought is there to stay; no collection need look through it, 0.2 s at a time."""
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def _tune_late(tuning: ConntrackTuning) -> None:
    """The first rules may have loaded connection tracking; too late then to refuse to start."""
    try:
        tuning.run()
    except HostError as error:
        log.error(str(error))


def prepare_node(config: Config) -> None:
    """The settings of the kernel that a start makes, and nothing else."""
    ConntrackTuning(config.conntrack, KernelSysctls()).run()
    if config.localhost_node_ports:
        allow_localnet(KernelSysctls())
    log.info("the node is prepared")


def _run(
    loop: ControlLoop,
    observation: Observation,
    loaded: Loaded,
    datapath_name: str,
    carriers: Sequence[Background],
) -> None:
    """`carriers` bring events to where they go; they end last, as what ends may have something to say."""
    changed = threading.Event()
    services: list[Background] = [*carriers, *observation.servers(loaded)]
    if datapath_name == "ebpf":
        from kbpf.ebpf_parts import packet_path_services

        services += packet_path_services(loaded.config, SystemClock(), lambda: loop.put(NodeStateChanged()))
    if loaded.file:
        services.append(ConfigurationWatch(loaded.file.path, loaded.file.text, lambda: _end(loop, changed)))
    _adjust_oom_score(loaded.config)
    with ExitStack() as running:
        running.callback(observation.service_health.stop)
        for service in services:
            service.start()
            running.callback(service.stop)
        observation.starting()
        loop.run()
    if loaded.file and changed.is_set():
        raise KbpfError(f"{loaded.file.path} has changed: ending, to be started with the new configuration")
    log.info("stopped; what is in the kernel stays and traffic goes on")


def _adjust_oom_score(config: Config) -> None:
    try:
        adjust_oom_score(config.oom_score_adjustment)
    except HostError as error:
        log.info(str(error))  # it needs a capability that kbpf can do without


def _end(loop: ControlLoop, why: threading.Event) -> None:
    why.set()
    loop.stop()


def _stop_before_anything_runs(signum: int, _: FrameType | None) -> None:
    log.info("stopped before the start was done")
    raise SystemExit(0)


def _stop_on_signals(loop: ControlLoop) -> None:
    def stop(signum: int, _: FrameType | None) -> None:
        loop.stop()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, stop)
