"""The kernel's BPF objects through libbpf.so.1: the few calls the daemon needs, without BCC.

Every function raises OSError with the kernel's errno; `maps`, `links` and `loader` know the names and translate it.
libbpf comes with the distribution's BCC. ctypes drops the interpreter lock during a call.
"""

import ctypes
import os
from ctypes import byref, c_char, c_uint32, c_uint64, sizeof
from functools import cache
from pathlib import Path
from typing import NamedTuple

LIBRARY = "libbpf.so.1"
ENOTSUPP = 524
"""The kernel's own word, which neither libc nor Python knows."""


@cache
def library() -> ctypes.CDLL:
    """Raises OSError when libbpf is not installed."""
    return ctypes.CDLL(LIBRARY, use_errno=True)


def call(function: str, *arguments: object) -> int:
    """A function of libbpf that answers a negative number on failure."""
    result = int(getattr(library(), function)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
    return result


# ---- pins


def obj_get(path: Path) -> int:
    return call("bpf_obj_get", os.fsencode(path))


def obj_pin(fd: int, path: Path) -> None:
    call("bpf_obj_pin", fd, os.fsencode(path))


# ---- what an object is


class MapInfo(NamedTuple):
    type: int
    id: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int


class ProgramInfo(NamedTuple):
    type: int
    id: int
    map_ids: tuple[int, ...]
    name: str
    """At most fifteen characters of it."""


class LinkInfo(NamedTuple):
    """`cgroup_id` is 0 when the cgroup is gone."""

    id: int
    program_id: int
    cgroup_id: int
    attach_type: int


class DeviceLinkInfo(NamedTuple):
    """`device` is 0 when the device is gone."""

    program_id: int
    device: int
    attach_type: int


class _MapInfo(ctypes.Structure):
    _fields_ = [(name, c_uint32) for name in ("type", "id", "key_size", "value_size", "max_entries", "map_flags")]


class _ProgramInfo(ctypes.Structure):
    _fields_ = [
        ("type", c_uint32),
        ("id", c_uint32),
        ("tag", c_char * 8),
        ("jited_prog_len", c_uint32),
        ("xlated_prog_len", c_uint32),
        ("jited_prog_insns", c_uint64),
        ("xlated_prog_insns", c_uint64),
        ("load_time", c_uint64),
        ("created_by_uid", c_uint32),
        ("nr_map_ids", c_uint32),
        ("map_ids", c_uint64),
        ("name", c_char * 16),
    ]


class _CgroupLinkInfo(ctypes.Structure):
    _fields_ = [
        ("type", c_uint32),
        ("id", c_uint32),
        ("prog_id", c_uint32),
        ("cgroup_id", c_uint64),
        ("attach_type", c_uint32),
    ]


class _DeviceLinkInfo(ctypes.Structure):
    _fields_ = [
        ("type", c_uint32),
        ("id", c_uint32),
        ("prog_id", c_uint32),
        ("pad", c_uint32),
        ("ifindex", c_uint32),
        ("attach_type", c_uint32),
    ]


def _info(fd: int, info: ctypes.Structure) -> None:
    # The kernel fills as much as fits: these structures are the beginnings of its own.
    call("bpf_obj_get_info_by_fd", fd, byref(info), byref(c_uint32(sizeof(info))))


def map_info(fd: int) -> MapInfo:
    info = _MapInfo()
    _info(fd, info)
    return MapInfo(info.type, info.id, info.key_size, info.value_size, info.max_entries, info.map_flags)


def program_info(fd: int) -> ProgramInfo:
    ids = (c_uint32 * 64)()
    info = _ProgramInfo(nr_map_ids=len(ids), map_ids=ctypes.addressof(ids))
    _info(fd, info)
    return ProgramInfo(info.type, info.id, tuple(ids[: info.nr_map_ids]), info.name.decode("ascii", "replace"))


def program_by_id(program_id: int) -> int:
    return call("bpf_prog_get_fd_by_id", program_id)


def link_info(fd: int) -> LinkInfo:
    info = _CgroupLinkInfo()
    _info(fd, info)
    return LinkInfo(info.id, info.prog_id, info.cgroup_id, info.attach_type)


def device_link_info(fd: int) -> DeviceLinkInfo:
    info = _DeviceLinkInfo()
    _info(fd, info)
    return DeviceLinkInfo(info.prog_id, info.ifindex, info.attach_type)


# ---- maps


def _address(buffer: bytearray) -> ctypes.Array[c_char]:
    return (c_char * len(buffer)).from_buffer(buffer)


def _asked(function: str, fd: int, key: bytes | None, size: int) -> bytes | None:
    """What the kernel has for the key, in so many bytes; None: nothing."""
    answer = ctypes.create_string_buffer(size)
    try:
        call(function, fd, key, answer)
    except FileNotFoundError:
        return None
    return answer.raw


def map_lookup(fd: int, key: bytes, value_size: int) -> bytes | None:
    return _asked("bpf_map_lookup_elem", fd, key, value_size)


def map_update(fd: int, key: bytes, value: bytes) -> None:
    call("bpf_map_update_elem", fd, key, value, c_uint64(0))


def map_delete(fd: int, key: bytes) -> None:
    call("bpf_map_delete_elem", fd, key)


def map_next_key(fd: int, key: bytes | None, key_size: int) -> bytes | None:
    """The key behind `key` (None: the first); None behind the last."""
    return _asked("bpf_map_get_next_key", fd, key, key_size)


class BatchError(OSError):
    """A batch that ended early: `done` elements stand."""

    done: int


def _batch(function: str, fd: int, count: int, *buffers: bytearray) -> None:
    done = c_uint32(count)
    try:
        call(function, fd, *map(_address, buffers), byref(done), None)
    except OSError as error:
        failure = BatchError(error.errno, error.strerror, function)
        failure.done = done.value
        raise failure from None


def map_update_batch(fd: int, keys: bytearray, values: bytearray, count: int) -> None:
    _batch("bpf_map_update_batch", fd, count, keys, values)


def map_delete_batch(fd: int, keys: bytearray, count: int) -> None:
    _batch("bpf_map_delete_batch", fd, count, keys)


class Batch(NamedTuple):
    keys: bytearray
    values: bytearray
    size: int
    position: bytearray
    """Where the next batch begins."""
    is_last: bool


def map_lookup_batch(fd: int, position: bytearray | None, key_size: int, value_size: int, room: int) -> Batch:
    """Up to `room` entries from `position` on (None: the beginning). OSError ENOSPC: a hash bucket needs more room."""
    keys, values = bytearray(key_size * room), bytearray(value_size * room)
    # Hash maps want four bytes for a position, others a key.
    following = bytearray(max(key_size, 4))
    count, is_last = c_uint32(room), False
    start = None if position is None else _address(position)
    buffers = (_address(following), _address(keys), _address(values))
    try:
        call("bpf_map_lookup_batch", fd, start, *buffers, byref(count), None)
    except FileNotFoundError:
        is_last = True
    del start, buffers  # ctypes holds the bytearrays at their size as long as these live
    return Batch(keys[: count.value * key_size], values[: count.value * value_size], count.value, following, is_last)


def possible_cpus() -> int:
    return call("libbpf_num_possible_cpus")


# ---- links


def link_create(program_fd: int, target: int, attach_type: int) -> int:
    """`target` is the file descriptor of a cgroup, or the index of a device."""
    return call("bpf_link_create", program_fd, target, attach_type, None)


def link_update(link_fd: int, program_fd: int) -> None:
    """Replace the program of a link at once: every call meets the old one or the new one."""
    call("bpf_link_update", link_fd, program_fd, None)


def link_detach(link_fd: int) -> None:
    call("bpf_link_detach", link_fd)


def attached_program_ids(cgroup_fd: int, attach_type: int) -> tuple[int, ...]:
    """The programs of everybody on one hook of one cgroup."""
    flags, count, ids = c_uint32(), c_uint32(256), (c_uint32 * 256)()
    call("bpf_prog_query", cgroup_fd, attach_type, 0, byref(flags), ids, byref(count))
    return tuple(ids[: count.value])
