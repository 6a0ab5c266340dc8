"""Structs of a pinned map as the kernel tells them: its BTF, read and walked (Documentation/bpf/btf.rst)."""

import ctypes
import struct
from ctypes import byref, c_char, c_uint32, c_uint64, sizeof
from pathlib import Path
from typing import NamedTuple

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.links import closing
from kbpf.datapath.ebpf.packing import Member

INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FUNC_PROTO, VAR, DATASEC = range(
    1, 16
)
DECL_TAG, ENUM64 = 17, 19
# Bytes after a type's own twelve: fixed, and for each of its members.
TAILS = {
    INT: (4, 0),
    ARRAY: (12, 0),
    STRUCT: (0, 12),
    UNION: (0, 12),
    ENUM: (0, 8),
    FUNC_PROTO: (0, 8),
    VAR: (4, 0),
    DATASEC: (0, 12),
    DECL_TAG: (4, 0),
    ENUM64: (0, 12),
}
ALIASES = (TYPEDEF, VOLATILE, CONST, RESTRICT)


class _MapBtf(ctypes.Structure):
    _fields_ = [
        ("begins", c_char * 64),
        ("btf_id", c_uint32),
        ("key_type_id", c_uint32),
        ("value_type_id", c_uint32),
    ]


class _BtfInfo(ctypes.Structure):
    _fields_ = [("btf", c_uint64), ("btf_size", c_uint32), ("id", c_uint32)]


class Type(NamedTuple):
    name: str
    kind: int
    n_members: int
    size: int
    """Or the number of another type."""
    tail: bytes


class Btf:
    """The types of one BTF blob, by number."""

    def __init__(self, blob: bytes) -> None:
        _, _, _, header, types_at, types_length, strings_at, _ = struct.unpack_from("=HBBIIIII", blob)
        self._strings = blob[header + strings_at :]
        self._types = [Type("void", 0, 0, 0, b"")]
        at, end = header + types_at, header + types_at + types_length
        while at < end:
            name_at, word, size = struct.unpack_from("=III", blob, at)
            kind, n_members = word >> 24 & 0x1F, word & 0xFFFF
            fixed, each = TAILS.get(kind, (0, 0))
            tail = blob[at + 12 : at + 12 + fixed + each * n_members]
            self._types.append(Type(self._string(name_at), kind, n_members, size, tail))
            at += 12 + len(tail)

    def _string(self, at: int) -> str:
        return self._strings[at : self._strings.index(b"\0", at)].decode()

    def resolved(self, number: int) -> Type:
        found = self._types[number]
        return self.resolved(found.size) if found.kind in ALIASES else found

    def size_of(self, number: int) -> int:
        found = self.resolved(number)
        if found.kind == ARRAY:
            element, _, length = struct.unpack("=III", found.tail)
            return self.size_of(element) * length
        return found.size

    def members(self, number: int) -> list[tuple[Member, int]]:
        """Each member of a struct with the number of its type."""
        found = self.resolved(number)
        assert found.kind == STRUCT, found
        triples = struct.iter_unpack("=III", found.tail)
        return [
            (Member(self._string(name_at), bits // 8, self.size_of(of_type)), of_type)
            for name_at, of_type, bits in triples
        ]


class MapTypes(NamedTuple):
    btf: Btf
    key: int
    value: int


def of_pinned_map(pin: Path) -> MapTypes:
    with closing(libbpf.obj_get(pin)) as fd:
        about = _MapBtf()
        _get_info(fd, about)
    assert about.btf_id, f"{pin.name} was created without BTF"
    with closing(libbpf.library().bpf_btf_get_fd_by_id(about.btf_id)) as fd:
        room = ctypes.create_string_buffer(1 << 20)
        described = _BtfInfo(btf=ctypes.addressof(room), btf_size=len(room))
        _get_info(fd, described)
    return MapTypes(Btf(room.raw[: described.btf_size]), about.key_type_id, about.value_type_id)


def _get_info(fd: int, about: ctypes.Structure) -> None:
    assert libbpf.library().bpf_obj_get_info_by_fd(fd, byref(about), byref(c_uint32(sizeof(about)))) == 0
