"""Runs a pinned packet program on one packet, without a device: BPF_PROG_TEST_RUN through libbpf."""

import ctypes
import struct
from ctypes import c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import NamedTuple

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.links import closing

NEXT, DROP, REDIRECT = 0xFFFFFFFF, 2, 7
CONTEXT_SIZE = 192
MARK_OFFSET = 8
ROOM = 256


class Result(NamedTuple):
    verdict: int
    packet: bytes
    mark: int
    nanoseconds: int
    """Of one run, on average."""


class _Options(ctypes.Structure):
    """struct bpf_test_run_opts."""

    _fields_ = [
        ("sz", c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", c_void_p),
        ("ctx_out", c_void_p),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    ]


def run(program: Path, packet: bytes, *, mark: int = 0, repeat: int = 1) -> Result:
    data_in = ctypes.create_string_buffer(packet, len(packet))
    data_out = ctypes.create_string_buffer(len(packet) + ROOM)
    context_in = ctypes.create_string_buffer(CONTEXT_SIZE)
    context_out = ctypes.create_string_buffer(CONTEXT_SIZE)
    struct.pack_into("=I", context_in, MARK_OFFSET, mark)
    options = _Options(
        data_in=ctypes.addressof(data_in),
        data_out=ctypes.addressof(data_out),
        data_size_in=len(packet),
        data_size_out=len(data_out),
        ctx_in=ctypes.addressof(context_in),
        ctx_out=ctypes.addressof(context_out),
        ctx_size_in=CONTEXT_SIZE,
        ctx_size_out=CONTEXT_SIZE,
        repeat=repeat,
    )
    options.sz = ctypes.sizeof(options)
    with closing(libbpf.obj_get(program)) as fd:
        libbpf.call("bpf_prog_test_run_opts", fd, ctypes.byref(options))
    (mark_out,) = struct.unpack_from("=I", context_out, MARK_OFFSET)
    return Result(options.retval, data_out.raw[: options.data_size_out], mark_out, options.duration)
