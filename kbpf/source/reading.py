"""What reading one manifest file gave: values passed from the reader to the catalog."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kbpf.source.object_key import Object, ObjectKey, printable


class FileName(NamedTuple):
    """Files sort by the option that named them, then by path: the first file to hold an object wins."""

    order: int
    path: str

    def __str__(self) -> str:
        return "standard input" if self.path == "-" else printable(self.path)


class Entry(NamedTuple):
    line: int
    object: Object


class Remark(NamedTuple):
    """One line about a place in a file. A notice is no problem: something was skipped that kbpf has no use for."""

    line: int
    words: str
    is_notice: bool = False


class Reading(msgspec.Struct, frozen=True):
    """`broken` objects were found but cannot be used. `is_partial`: what else the file holds could not be told."""

    objects: Mapping[ObjectKey, Entry] = msgspec.field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    broken: frozenset[ObjectKey] = frozenset()
    is_partial: bool = False
