"""How rows become bytes: one Layout for each C struct, one MapSpec for each map.

Used by `layout`, which says what the structs and maps are, and by `maps`, which checks and moves the bytes.
"""

import socket
import struct
from collections.abc import Iterable
from enum import IntEnum
from itertools import starmap
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kbpf.datapath.ebpf.sizes import size_flag

Row = TypeVar("Row", bound=tuple[Any, ...])


class Member(NamedTuple):
    """A member of a struct as BTF tells it."""

    name: str
    offset: int
    size: int


class Layout(Generic[Row]):
    """One C struct: its name there, the row it becomes here, and `member:format` for each member, pads included.

    >>> Layout("udp_conn_key", UdpConnKey, "netns_cookie:Q socket_cookie:Q").pack(UdpConnKey(1, 2))
    """

    def __init__(self, struct_name: str, row: type[Row], members: str) -> None:
        self.struct_name = struct_name
        self.members = tuple(_members(members))
        self.row = row
        # "=": no implicit padding, so a C struct that has some fails the layout test.
        self._struct = struct.Struct("=" + "".join(member.split(":")[1] for member in members.split()))
        self.size = self._struct.size
        self._ports = tuple(i for i, member in enumerate(self.members) if member.name.endswith("port"))

    def pack(self, row: Row) -> bytes:
        return self._struct.pack(*self._swap_ports(row))

    def pack_all(self, rows: Iterable[Row]) -> bytearray:
        return bytearray().join(map(self.pack, rows) if self._ports else starmap(self._struct.pack, rows))

    def unpack(self, packed: bytes | bytearray | memoryview) -> Row:
        return self._make(self._struct.unpack(packed))

    def unpack_all(self, packed: bytes | bytearray | memoryview) -> list[Row]:
        return [self._make(fields) for fields in self._struct.iter_unpack(packed)]

    def _make(self, fields: tuple[Any, ...]) -> Row:
        return self.row(*self._swap_ports(fields))

    def _swap_ports(self, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        """Ports are in network order in a map and in host order in a row; the swap is its own inverse."""
        if not self._ports:
            return fields
        swapped = list(fields)
        for index in self._ports:
            swapped[index] = socket.htons(swapped[index])
        return tuple(swapped)


def _members(members: str) -> list[Member]:
    result, offset = [], 0
    for member in members.split():
        name, code = member.split(":")
        size = struct.calcsize("=" + code)
        result.append(Member(name, offset, size))
        offset += size
    return result


class MapType(IntEnum):
    """The kernel's numbers (enum bpf_map_type)."""

    HASH = 1
    ARRAY = 2
    PERCPU_ARRAY = 6
    LRU_HASH = 9
    LRU_PERCPU_HASH = 10
    LPM_TRIE = 11
    SK_STORAGE = 24


BPF_F_NO_PREALLOC = 1

Key = TypeVar("Key", bound=tuple[Any, ...])
Value = TypeVar("Value", bound=tuple[Any, ...])


class MapSpec(msgspec.Struct, Generic[Key, Value], frozen=True):
    """What the kernel must say of a pinned map before anything is read from it or written to it."""

    name: str
    type: MapType
    key: Layout[Key]
    value: Layout[Value]
    max_entries: int
    flags: int = 0

    @property
    def size_flag(self) -> str:
        """The option that sets max_entries."""
        return size_flag(self.name)
