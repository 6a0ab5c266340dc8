"""Tiny programs and maps that only ask whether the kernel takes them: what `probe` finds out by doing.

A program here is `return 1`, or one call of a helper; a map has room for one entry. No compiler is needed. Functions
raise OSError as those of `libbpf` do.
"""

import ctypes
import os
import struct
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

from kbpf.datapath.ebpf.libbpf import call
from kbpf.datapath.ebpf.packing import BPF_F_NO_PREALLOC, MapType

# Helpers by the kernel's numbers (enum bpf_func_id).
GET_SOCKET_COOKIE = 46
SK_STORAGE_GET = 107
GET_NETNS_COOKIE = 122
KTIME_GET_COARSE_NS = 160
SET_RETVAL = 187
# skb_store_bytes, l3_csum_replace, l4_csum_replace, redirect, skb_load_bytes, csum_diff
PACKET_HELPERS = (9, 10, 11, 23, 26, 28)

_LOG_SIZE = 1 << 16


class _LoadOptions(ctypes.Structure):
    """struct bpf_prog_load_opts."""

    _fields_ = [
        ("sz", c_size_t),
        ("attempts", c_int),
        ("expected_attach_type", c_int),
        ("unused", c_uint32 * 7),
        ("fd_array", c_void_p),
        ("func_info", c_void_p),
        ("func_info_count_and_size", c_uint32 * 2),
        ("line_info", c_void_p),
        ("line_info_count_and_size", c_uint32 * 2),
        ("log_level", c_uint32),
        ("log_size", c_uint32),
        ("log_buf", c_void_p),
    ]


class _MapOptions(ctypes.Structure):
    """struct bpf_map_create_opts."""

    _fields_ = [
        ("sz", c_size_t),
        ("btf_fd", c_uint32),
        ("btf_key_type_id", c_uint32),
        ("btf_value_type_id", c_uint32),
        ("btf_vmlinux_value_type_id", c_uint32),
        ("inner_map_fd", c_uint32),
        ("map_flags", c_uint32),
        ("map_extra", c_uint64),
        ("numa_node", c_uint32),
        ("map_ifindex", c_uint32),
    ]


def _instruction(code: int, register: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, register, 0, value)


def _move(register: int, value: int) -> bytes:
    return _instruction(0xB7, register, value)


_RETURN_1 = _move(0, 1) + _instruction(0x95)
RETURN_NEXT = _move(0, -1) + _instruction(0x95)


def load_program(program_type: int, attach_type: int, instructions: bytes = _RETURN_1) -> int:
    """The file descriptor of a program that lets everything pass."""
    return _load(program_type, attach_type, instructions, ctypes.create_string_buffer(_LOG_SIZE))


def knows_helper(program_type: int, attach_type: int, helper: int) -> bool:
    """Would the verifier let such a program call this helper? It may well object to the arguments, which are zeros."""
    arguments = b"".join(_move(register, 0) for register in range(1, 6))
    log = ctypes.create_string_buffer(_LOG_SIZE)
    try:
        os.close(_load(program_type, attach_type, arguments + _instruction(0x85, value=helper) + _RETURN_1, log))
        return True
    except PermissionError:
        if not log.value:
            raise  # the verifier did not get as far as reading the program
    except OSError:
        pass
    words = log.value
    return bool(words) and not any(no in words for no in (b"unknown func", b"invalid func", b"cannot use helper"))


def _load(program_type: int, attach_type: int, code: bytes, log: ctypes.Array[ctypes.c_char]) -> int:
    options = _LoadOptions(attempts=1, expected_attach_type=attach_type, log_level=1, log_size=len(log))
    options.sz, options.log_buf = sizeof(options), ctypes.addressof(log)
    return call("bpf_prog_load", program_type, b"kbpf_probe", b"GPL", code, c_size_t(len(code) // 8), byref(options))


def create_map(map_type: MapType) -> int:
    """The file descriptor of a map with room for one entry of 8 bytes."""
    options = _MapOptions()
    options.sz = sizeof(options)
    key_size, entries = 4, 1
    if map_type is MapType.LPM_TRIE:
        # The length of a prefix, and the prefix.
        key_size, options.map_flags = 8, BPF_F_NO_PREALLOC
    if map_type is MapType.SK_STORAGE:
        entries, options.map_flags = 0, BPF_F_NO_PREALLOC
        options.btf_fd, options.btf_key_type_id, options.btf_value_type_id = _load_btf(), 1, 2
    try:
        return call("bpf_map_create", map_type, b"kbpf_probe", key_size, 8, entries, byref(options))
    finally:
        if options.btf_fd:
            os.close(options.btf_fd)


def _load_btf() -> int:
    """Two integers, the key and the value: a map of socket records must say what it holds."""
    strings = b"\0int\0long\0"
    signed = 1 << 24
    types = struct.pack("=IIIIIIII", 1, 1 << 24, 4, signed | 32, 5, 1 << 24, 8, signed | 64)
    header = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    blob = header + types + strings
    return call("bpf_btf_load", blob, c_uint32(len(blob)), None)
