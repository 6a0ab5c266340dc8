"""Packed rows into and out of one kernel map: many with a call, or, for a trie, one with each.

Linux 5.10 refuses batches of a longest-prefix trie (ENOTSUPP), and has them for every other map whose rows go through
here. Only source ranges are in a trie, and they are few, so there is one way for all kernels.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.packing import MapType

BATCH = 8192


class Packed(NamedTuple):
    keys: bytearray
    values: bytearray
    size: int


class Transfer(Protocol):
    """Every method raises OSError."""

    def update(self, fd: int, keys: bytearray, values: bytearray, count: int) -> None:
        """After an error some of the rows stand."""
        ...

    def delete(self, fd: int, keys: Sequence[bytes]) -> None:
        """A key that is not there is no error, since an LRU map may have been faster."""
        ...

    def read(self, fd: int, key_size: int, value_size: int, max_entries: int) -> Iterator[Packed]:
        """Everything in the map, a part at a time. Entries that others change meanwhile may be in or out."""
        ...


def transfer_of(map_type: MapType) -> Transfer:
    return OneByOne() if map_type is MapType.LPM_TRIE else InBatches()


class InBatches:
    def update(self, fd: int, keys: bytearray, values: bytearray, count: int) -> None:
        libbpf.map_update_batch(fd, keys, values, count)

    def delete(self, fd: int, keys: Sequence[bytes]) -> None:
        while keys:
            try:
                libbpf.map_delete_batch(fd, bytearray().join(keys), len(keys))
            except libbpf.BatchError as error:
                if error.errno != errno.ENOENT:
                    raise
                keys = keys[error.done + 1 :]
            else:
                return

    def read(self, fd: int, key_size: int, value_size: int, max_entries: int) -> Iterator[Packed]:
        position, room = None, min(BATCH, max(max_entries, 1))
        while True:
            try:
                batch = libbpf.map_lookup_batch(fd, position, key_size, value_size, room)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                room *= 2
                continue
            yield Packed(batch.keys, batch.values, batch.size)
            if batch.is_last:
                return
            position = batch.position


class OneByOne:
    def update(self, fd: int, keys: bytearray, values: bytearray, count: int) -> None:
        for key, value in zip(_split(keys, count), _split(values, count), strict=True):
            libbpf.map_update(fd, key, value)

    def delete(self, fd: int, keys: Sequence[bytes]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                libbpf.map_delete(fd, key)

    def read(self, fd: int, key_size: int, value_size: int, max_entries: int) -> Iterator[Packed]:
        """`max_entries` also ends it: a trie that loses the key we stand at begins anew."""
        key = None
        for _ in range(max_entries):
            key = libbpf.map_next_key(fd, key, key_size)
            if key is None:
                return
            value = libbpf.map_lookup(fd, key, value_size)
            if value is not None:
                yield Packed(bytearray(key), bytearray(value), 1)


def _split(packed: bytearray, count: int) -> Iterator[bytes]:
    size = len(packed) // count
    return (bytes(packed[start : start + size]) for start in range(0, len(packed), size))
