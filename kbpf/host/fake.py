"""A node in memory: its connection tracking and its sysctls, with the kernel's rules.

Each fake passes the contract tests of the real one; tests of what stands above run on them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kbpf.errors import HostError
from kbpf.host.conntrack import UdpEntry
from kbpf.host.sysctl import Sysctl
from kbpf.model.address import Family

ADDRESS_BYTES = {Family.IPV4: 4, Family.IPV6: 16}


@dataclass
class FakeConntrack:
    """`failure` is raised by every call while it is set; `listings` counts how often the table was read."""

    entries: set[UdpEntry] = field(default_factory=set)
    failure: HostError | None = None
    listings: int = 0

    def list_udp(self, family: Family) -> Iterator[UdpEntry]:
        self._fail()
        self.listings += 1
        yield from [entry for entry in self.entries if len(entry.destination) == ADDRESS_BYTES[family]]

    def delete(self, entries: Iterable[UdpEntry]) -> int:
        wanted = set(entries)
        self._fail()
        there = self.entries & wanted
        self.entries -= there
        return len(there)

    def _fail(self) -> None:
        if self.failure:
            raise self.failure


@dataclass
class FakeSysctls:
    """`values` are those that exist, `read_only` those that may not be written; no file appears by writing it."""

    values: dict[Sysctl, int] = field(default_factory=dict)
    read_only: frozenset[Sysctl] = frozenset()

    def read(self, sysctl: Sysctl) -> int | None:
        return self.values.get(sysctl)

    def write(self, sysctl: Sysctl, value: int) -> None:
        if sysctl not in self.values:
            raise HostError(f"cannot set {sysctl.value} to {value}: No such file or directory")
        if sysctl in self.read_only:
            raise HostError(f"cannot set {sysctl.value} to {value}: Permission denied")
        self.values[sysctl] = value
