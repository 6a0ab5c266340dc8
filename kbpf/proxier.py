"""The straight line: events in, one decided table, one datapath brought in step, one report out.

    changes = trackers.checkout()     what changed since the last good sync
    resolve                           what this node must do about it (pure)
    datapath.sync                     observe, plan, apply
    trackers.commit                   only now are the changes consumed
    udp_cleanup.clean                 forget UDP flows to backends that left

server.py owns the thread that calls it and decides with the runner when to. Nothing here waits.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from kbpf.datapath.interface import Datapath, SyncReport
from kbpf.host.udp_cleanup import CleanedFlows, UdpCleanup
from kbpf.model.events import Event, Kind, NodeChanged, NodeStateChanged, Synced
from kbpf.model.names import ServiceName
from kbpf.model.node import NodeTopology, is_eligible, node_zone
from kbpf.model.objects import Node
from kbpf.model.problem import Problem
from kbpf.model.table import ServiceTable
from kbpf.policy.resolve import resolve
from kbpf.tracking.trackers import ChangeCounts, Trackers
from kbpf.tracking.trigger_times import TriggerTime

log = logging.getLogger(__name__)

REQUIRED_KINDS = frozenset(Kind)


class Status(msgspec.Struct, frozen=True):
    """What a sync that succeeded leaves to be told."""

    report: SyncReport
    table: ServiceTable
    services: frozenset[ServiceName]
    """Those that may differ from before."""
    changes: ChangeCounts
    node: Node | None = None
    triggers: tuple[TriggerTime, ...] = ()
    cleaned: tuple[CleanedFlows, ...] = ()


class Proxier:
    """Owned by the control thread. `publish` is given a Status after each successful sync."""

    def __init__(
        self,
        node_name: str,
        trackers: Trackers,
        datapath: Callable[[Node | None], Datapath],
        udp_cleanup: UdpCleanup,
        publish: Callable[[Status], None],
        *,
        expects_node: bool = False,
        node_known: Callable[[Node | None], None] = lambda own: None,
        found_wrong: Callable[[Problem], None] = lambda problem: None,
    ) -> None:
        """`datapath` is called once, at the first sync: its settings depend on the Node, which arrives as an event.

        `expects_node`: the source knows all Nodes, so that one which it does not know is none of the cluster.
        `node_known` is told of the Node when it is certain while other lists are still to come.
        `found_wrong` is told of each new problem of an object.
        """
        self._node_name = node_name
        self._trackers = trackers
        self._make_datapath = datapath
        self._udp_cleanup = udp_cleanup
        self._publish = publish
        self._node_known = node_known
        self._found_wrong = found_wrong
        self._expects_node = expects_node
        self._datapath: Datapath | None = None
        self._table = ServiceTable()
        self._node: Node | None = None
        self._topology = NodeTopology(node_name)
        self._missing = set(REQUIRED_KINDS)
        self._needs_full = True
        self._needs_resolve_all = False

    # -- events in ---------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> bool:
        """Take one event; True when a sync should follow."""
        if isinstance(event, Synced):
            self._missing.discard(event.kind)
            if event.kind is Kind.NODE and not self.is_ready:
                self._node_known(self._node)
            return self.is_ready
        if isinstance(event, NodeChanged):
            return self._take_node(event) and self.is_ready
        if isinstance(event, NodeStateChanged):
            # Only a full sync asks the node what it looks like.
            self._needs_full = True
            return self.is_ready
        changed, problems = self._trackers.update(event)
        for problem in problems:
            log.warning(str(problem))
            self._found_wrong(problem)
        return changed and self.is_ready

    def _take_node(self, event: NodeChanged) -> bool:
        if event.name != self._node_name:
            return False
        self._node = event.node
        if event.node is None:
            return False  # its zone is kept, as in kube-proxy: a lapse of the API must not move traffic
        topology = NodeTopology(self._node_name, node_zone(event.node))
        if topology == self._topology:
            return False
        self._topology = topology
        self._needs_resolve_all = True
        return True

    @property
    def node_is_eligible(self) -> bool:
        """May load balancers use this node?"""
        return is_eligible(self._node) if self._node else not self._expects_node

    @property
    def change_counts(self) -> ChangeCounts:
        return self._trackers.counts

    @property
    def is_ready(self) -> bool:
        """All initial lists are complete; until then the kernel keeps what an earlier process left there."""
        return not self._missing

    # -- one sync ----------------------------------------------------------------------------------------------------

    def lost(self) -> tuple[str, ...]:
        """What others took out of force since the last sync. Nothing when the next one is full anyway."""
        return () if self._datapath is None or self._needs_full else self._datapath.lost()

    def examine(self) -> Iterator[tuple[str, ...]] | None:
        """A look that sees everything, in steps between which syncs may come. None: only a full sync does."""
        return None if self._datapath is None or self._needs_full else self._datapath.examine()

    def sync(self, *, full: bool = False) -> SyncReport:
        """Bring the kernel in step. A full sync looks at everything and finds what others did to it.

        Raises KbpfError when the kernel does not hold the wanted state. Nothing was consumed then: the changes stay
        pending and the next sync is full.
        """
        changes = self._trackers.checkout()
        full = full or self._needs_full or self._needs_resolve_all
        dirty = self._resolve(self._all_services() if self._needs_resolve_all else changes.dirty)
        self._udp_cleanup.note(dirty, self._table, self._trackers)
        if self._datapath is None:
            self._datapath = self._make_datapath(self._node)  # as late as can be: what it waits for goes on meanwhile
        self._needs_full = True  # until this sync is known to have succeeded
        report = self._datapath.sync(self._table, dirty, full=full)
        self._trackers.commit(changes)
        self._needs_full = self._needs_resolve_all = False
        cleaned = self._udp_cleanup.clean(repaired=report.full and report.writes > 0)
        triggers = tuple(chain.from_iterable(changes.triggers.values()))
        self._publish(Status(report, self._table, dirty, self._trackers.counts, self._node, triggers, cleaned))
        return report

    def _resolve(self, services: frozenset[ServiceName]) -> frozenset[ServiceName]:
        """Decide `services` anew and put them into the table; returns every service that must be written for it."""
        affected: set[ServiceName] = set()
        for service, ports in resolve(services, self._trackers, self._topology).items():
            affected |= self._table.replace(service, ports)
        return frozenset(affected)

    def _all_services(self) -> frozenset[ServiceName]:
        return frozenset(self._trackers.service_names) | frozenset(self._table.services)
