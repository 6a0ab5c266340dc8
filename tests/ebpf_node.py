"""One node without a kernel: maps and programs that outlive the process which keeps them in step."""

from collections.abc import Mapping

from kbpf.clock import FakeClock
from kbpf.datapath.ebpf import store
from kbpf.datapath.ebpf.backend import EbpfDatapath, Prepared
from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.fake import FakeMaps, FakePrograms
from kbpf.datapath.ebpf.node import NodeSettings
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.trace import Trace, trace
from kbpf.datapath.interface import SyncReport
from kbpf.model.address import Address
from kbpf.model.flow import Flow
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable


class EbpfNode:
    def __init__(
        self,
        sizes: Mapping[str, int] | None = None,
        settings: DeferSettings | None = None,
        *,
        first_sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Maps in `sizes` stay so small; those in `first_sizes` may grow."""
        self.programs = FakePrograms(sizes, first_sizes=first_sizes)
        self.settings = settings or DeferSettings()
        self.local_addresses: dict[Address, LocalFlag] = {}
        self.table = ServiceTable()
        self.restart()

    def restart(self) -> None:
        """Another process, which knows nothing; the kernel keeps what it has."""
        self.datapath = EbpfDatapath(
            self.programs, self.settings, lambda: self.local_addresses, NodeSettings(netns_cookie=7), FakeClock()
        )

    def prepare(self, cluster: ServiceTable, *, full: bool = False) -> Prepared:
        return self.datapath.prepare(self.table, self._change(cluster), full=full)

    def sync(self, cluster: ServiceTable, *, full: bool = False) -> SyncReport:
        return self.datapath.sync(self.table, self._change(cluster), full=full)

    def _change(self, cluster: ServiceTable) -> frozenset[ServiceName]:
        """Bring the table to `cluster`, service by service, as the proxier does."""
        names = {*self.table.services, *cluster.services}
        changed = [name for name in names if self.table.ports_of(name) != cluster.ports_of(name)]
        return frozenset().union(*(self.table.replace(name, cluster.ports_of(name)) for name in changed))

    @property
    def maps(self) -> FakeMaps:
        return self.programs.load({})

    @property
    def rows(self) -> Rows:
        return store.observe(self.maps)

    def trace(self, flow: Flow) -> Trace:
        return trace(self.rows, flow)
