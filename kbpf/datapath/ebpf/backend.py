"""The eBPF datapath: keeps the pinned maps in step with the ServiceTable and puts the programs in force.

    prepare     observe the maps, decide: the plan, and what is left to iptables
    commit      carry it out, then load the programs if needed and attach the hooks

`sync` is both; who feeds the residue to iptables does so in between. Only full syncs read the maps; a partial one knows
what it wrote. After a failure nothing is known, and the next sync is a full one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Protocol

import msgspec
from msgspec.structs import replace

from kbpf.clock import Clock
from kbpf.datapath.ebpf import differences, examination, store, text
from kbpf.datapath.ebpf.capacity import Sizes, demand
from kbpf.datapath.ebpf.collector import Flows, FlowTimeouts
from kbpf.datapath.ebpf.defer import DeferSettings, residue
from kbpf.datapath.ebpf.differences import Difference, Memory
from kbpf.datapath.ebpf.layout import LOCAL_ADDR
from kbpf.datapath.ebpf.node import NodeSettings, NodeState, node_rows, says_apart, stand_apart
from kbpf.datapath.ebpf.plan import Plan, plan
from kbpf.datapath.ebpf.retirement import retire
from kbpf.datapath.ebpf.rows import AnySpec
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.store import MapSet
from kbpf.datapath.interface import FamilyReport, Support, SyncReport
from kbpf.errors import LoadFailed, MapError
from kbpf.model.address import Address, Family
from kbpf.model.names import ServiceName
from kbpf.model.table import ResolvedPort, ServiceTable


class FlowMapSet(MapSet, Protocol):
    """With the flows of the packet programs, which no sync touches."""

    @property
    def flows(self) -> Flows: ...


class Programs(Protocol):
    """The programs, their pins and hooks: all that is no row in a map. `programs` has the real one."""

    @property
    def specs(self) -> Sequence[AnySpec]:
        """The maps with their sizes."""
        ...

    def probe(self) -> Support: ...

    def can_grow(self, need: Sizes) -> bool:
        """Would a load with this need make maps larger?"""
        ...

    def load_ahead(self, need: Sizes, maps_are_made: Callable[[], None]) -> None:
        """Have maps and programs in the kernel, in force or not; says when the maps can be written. Raises LoadFailed.

        Who else wants to load in this process waits until it is done.
        """
        ...

    def load(self, need: Sizes) -> MapSet:
        """Have the maps in the kernel and open them; the programs may still be to come. Raises LoadFailed.

        Maps without room for `need` are replaced by larger ones that hold the same, where that is possible.

        What somebody unpinned of the maps that are still open, from the last load, is pinned again.
        """
        ...

    def open(self) -> FlowMapSet | None:
        """The maps, if they exist; loads nothing."""
        ...

    @property
    def serves_packets(self) -> bool:
        """Will the packet programs be in force on some device? True or not since the last load."""
        ...

    def attach(self) -> int:
        """Put the programs in force where they are not, after a self-test; returns how many attachments that changed.

        They are loaded first, if that is still to be done. Raises MapError when the maps were replaced meanwhile, and
        when packet programs cannot be attached: from the next load on they serve no packets.
        """
        ...

    def is_pinned(self) -> bool:
        """Are the maps and attachments where they were put? Cheap enough for each sync, so it cannot see everything."""
        ...

    def is_attached(self) -> bool: ...

    def detach_hooks(self) -> None:
        """From sockets; the packet programs stay."""
        ...

    def remove(self) -> None:
        """Detach and unpin everything. Nothing there is no error."""
        ...


class Prepared(msgspec.Struct, frozen=True):
    """A sync that is decided and not yet carried out; `memory` is true once it is."""

    plan: Plan
    maps: MapSet
    memory: Memory
    full: bool
    services: frozenset[ServiceName]
    """Those that were decided anew: the dirty ones, and others for which there is room now."""
    masquerades: bool
    """Somebody needs the rule that masquerades marked packets; it must stand when this is carried out."""

    started: float


class EbpfDatapath:
    name = "ebpf"

    def __init__(
        self,
        programs: Programs,
        settings: DeferSettings,
        local_addresses: Callable[[], Mapping[Address, LocalFlag]],
        node: NodeSettings,
        clock: Clock,
        flow_timeouts: FlowTimeouts | None = None,
    ) -> None:
        self._programs = programs
        self._settings = self._deferral = settings
        self._defers = False
        self._local_addresses = local_addresses
        self._node = node
        self._clock = clock
        self._flow_timeouts = flow_timeouts or FlowTimeouts()
        self._maps: MapSet | None = None
        self._memory: Memory | None = None
        self._table = ServiceTable()

    def probe(self) -> Support:
        return self._programs.probe()

    def load(self, maps_are_made: Callable[[], None]) -> None:
        """Have maps and programs in the kernel, in force nowhere, so that the first sync need not wait for a compiler.

        That sync can begin when `maps_are_made` is called. Sizes are those that are there, or usual: one that needs
        more has them made anew.
        """
        self._programs.load_ahead({LOCAL_ADDR.name: len(self._local_addresses())}, maps_are_made)

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        return self.commit(self.prepare(table, dirty, full=full))

    def prepare(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> Prepared:
        """Decide what to write, write nothing. Until `commit` has done it, nothing is known about the maps."""
        started = self._clock.monotonic()
        self._table = table
        memory, self._memory = self._memory, None
        if full or memory is None or self._maps is None or not self._programs.is_pinned():
            # The kernel may let whoever asks for addresses wait for 0.1 s while others make namespaces.
            full, addresses = True, self._local_addresses()
            maps, difference = self._look(table, memory, addresses)
        else:
            addresses = memory.addresses
            maps, difference = self._maps, differences.partial(self._maps, memory, table, dirty)
            if self._programs.can_grow(difference.installed.lacking):
                full = True
                maps, difference = self._look(table, memory, addresses, difference.installed.lacking)
        known, wanted, installed, services = difference
        self._deferral, self._defers = installed.settings, installed.defers
        masquerades = self._programs.serves_packets and (installed.serves_external or bool(wanted.wanted))
        # A partial sync sees what it changes; of the rest it knows what the programs were told.
        may_stand_apart = full or (memory is not None and says_apart(memory.node))
        apart = may_stand_apart and stand_apart(chain(known.frontends, wanted.frontends), addresses)
        node = node_rows(self._node, NodeState(addresses, installed.ids.to_come, masquerades, apart))
        wanted.config, wanted.local_addr = node.config, node.local_addr
        wanted.source_ranges.update(node.source_ranges)
        remembered = Memory(installed, node, addresses)
        return Prepared(plan(known, wanted), maps, remembered, full, services, masquerades, started)

    def commit(self, prepared: Prepared) -> SyncReport:
        store.apply(prepared.plan, prepared.maps)
        # Asking for each partial sync would cost more than the sync; `lost` asks once a sync period.
        hooks = self._programs.attach() if prepared.full else 0
        self._memory = prepared.memory
        installed = prepared.memory.installed
        duration_s = self._clock.monotonic() - prepared.started
        return SyncReport(
            self.name,
            prepared.full,
            len(prepared.services),
            prepared.plan.writes + hooks,
            duration_s,
            installed.deferred,
            installed.warnings,
            # Every write is for both families at once.
            dict.fromkeys(Family, FamilyReport(duration_s, prepared.full)),
            installed.fill,
        )

    def lost(self) -> tuple[str, ...]:
        try:
            is_in_force = self._memory is None or self._programs.is_attached()
        except LoadFailed as error:  # pins that are gone or replaced
            return (str(error),)
        return () if is_in_force else ("the attachment of our programs",)

    def examine(self) -> Iterator[tuple[str, ...]]:
        services = self._memory.installed.services if self._memory else ()
        for part in examination.parts(services):
            if self._memory and self._maps:  # they are not known while the last sync failed
                yield _told(examination.altered(self._maps, self._memory.installed.rows_of(part)))
        if self._memory and self._maps:
            yield _told(examination.altered(self._maps, self._memory.node))
        for spec in examination.COUNTED:
            if self._memory and self._maps:
                yield _told(examination.miscounted(self._maps, spec, self._memory.entries(spec)))

    def residue(self, port: ResolvedPort) -> ResolvedPort | None:
        """The part of a service port that is left to iptables, by the last `prepare`; None: nothing."""
        return residue(port, self._table.owned_frontends(port), self._deferral) if self._defers else None

    def dump(self) -> str:
        maps = self._maps or self._programs.open()
        return text.dump(store.observe(maps)) if maps is not None else ""

    def cleanup(self) -> None:
        self._close()
        self._programs.remove()

    def retire(self) -> bool:
        """Stop taking on connections, and go once those that live on the packet programs have ended. True: all is gone.

        Another datapath carries the services by now. Raises MapError or LoadFailed.
        """
        self._close()
        try:
            maps = self._programs.open()
        except MapError:  # nothing can live on what cannot be read
            maps = None
        if maps is not None:
            try:
                if not retire(self._programs, maps, maps.flows, int(self._clock.monotonic()), self._flow_timeouts):
                    return False
            finally:
                maps.close()
        self._programs.remove()
        return True

    def _look(
        self,
        table: ServiceTable,
        memory: Memory | None,
        addresses: Mapping[Address, LocalFlag],
        need: Sizes | None = None,
    ) -> tuple[MapSet, Difference]:
        """All that the maps hold, and the difference to what they must hold; in larger maps if that takes them."""
        need = need or (demand(table) if memory is None else {})
        maps = self._open({**need, LOCAL_ADDR.name: len(addresses)})
        difference = self._full_difference(maps, table, memory)
        if self._programs.can_grow(difference.installed.lacking):
            maps = self._open(difference.installed.lacking)
            difference = self._full_difference(maps, table, memory)
        return maps, difference

    def _full_difference(self, maps: MapSet, table: ServiceTable, memory: Memory | None) -> Difference:
        settings = replace(self._settings, serves_packets=self._programs.serves_packets)
        return differences.full(maps, table, self._programs.specs, settings, memory)

    def _open(self, need: Sizes) -> MapSet:
        # Anew for each full sync: pins may have been replaced behind our back.
        maps = self._programs.load(need)
        self._close()
        self._maps = maps
        return maps

    def _close(self) -> None:
        if self._maps is not None:
            self._maps.close()
        self._maps = self._memory = None


def _told(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"entries of {name}" for name in sorted(names))
