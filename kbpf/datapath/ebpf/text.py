"""Rows as text and back: sorted, one row a line, addresses and numbers by the names that people know.

    backends id=7 -> address=10.42.1.5 port=8080 protocol=TCP

A value repeats fields of its key; they are printed only where the two differ, which no program would trust.
"""

from collections.abc import Callable
from enum import IntEnum, IntFlag
from functools import partial
from typing import Any, NamedTuple

from kbpf.datapath.ebpf import layout, shapes
from kbpf.datapath.ebpf.ids import backend_address, backend_row
from kbpf.datapath.ebpf.rows import SYNCED_MAPS, AnySpec, Rows
from kbpf.model.address import host_port, packed, parse_address, unpacked

ARROW = " -> "


class Protocol(IntEnum):
    """The kernel's numbers; a row may hold any other one as well."""

    TCP = 6
    UDP = 17
    SCTP = 132


class Words(NamedTuple):
    """How one field is written and read."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _name(numbers: type[IntEnum], number: int) -> str:
    return numbers(number).name if number in numbers._value2member_map_ else str(number)


def _number(numbers: type[IntEnum], word: str) -> int:
    return int(word) if word.isdigit() else numbers[word].value


def _flag_names(flags: type[IntFlag], number: int) -> str:
    names = "|".join(flag.name or "" for flag in flags if flag & number)
    return names if names and number == sum(flag for flag in flags if flag & number) else str(number)


def _flags(flags: type[IntFlag], word: str) -> int:
    return int(word) if word.isdigit() else sum(flags[name] for name in word.split("|"))


def _enumeration(numbers: type[IntEnum]) -> Words:
    return Words(partial(_name, numbers), partial(_number, numbers))


def _backend_words(raw: bytes) -> str:
    row = backend_row(raw, 0)
    return f"{host_port(unpacked(row.address), row.port)}/{_name(Protocol, row.protocol)}"


def _backend(word: str) -> bytes:
    place, _, protocol = word.rpartition("/")
    address, _, port = place.rpartition(":")
    return backend_address(packed(parse_address(address.strip("[]"))), int(port), _number(Protocol, protocol))


_ADDRESS = Words(unpacked, lambda word: packed(parse_address(word)))
_PLAIN = Words(str, int)
_BACKEND = Words(_backend_words, _backend)
_TEXT = Words(lambda raw: str(shapes.NameValue(raw)), lambda word: shapes.NameValue.of(word).text)
_WORDS = {
    "address": _ADDRESS,
    "backend": _BACKEND,
    "client": _ADDRESS,
    "node_address4": _ADDRESS,
    "node_address6": _ADDRESS,
    "protocol": _enumeration(Protocol),
    "kind": _enumeration(shapes.Kind),
    "defer_reason": _enumeration(shapes.DeferReason),
    "view": _enumeration(shapes.View),
    "internal_view": _enumeration(shapes.View),
    "external_view": _enumeration(shapes.View),
    "internal_verdict": _enumeration(shapes.Verdict),
    "external_verdict": _enumeration(shapes.Verdict),
    "text": _TEXT,
}
_FLAGS = {
    layout.FRONTENDS.name: shapes.FrontendFlag,
    layout.LOCAL_ADDR.name: shapes.LocalFlag,
    layout.CONFIG.name: shapes.ConfigFlag,
}


def _words(spec: AnySpec, field: str) -> Words:
    if field == "flags":
        return Words(partial(_flag_names, _FLAGS[spec.name]), partial(_flags, _FLAGS[spec.name]))
    return _WORDS.get(field, _PLAIN)


def field_words(spec: AnySpec, row: Any) -> dict[str, str]:
    return {field: _words(spec, field).write(content) for field, content in row._asdict().items()}


def _fields(spec: AnySpec, row: Any) -> str:
    return " ".join(f"{field}={word}" for field, word in field_words(spec, row).items())


def key_line(spec: AnySpec, key: Any) -> str:
    return f"{spec.name} {_fields(spec, key)}"


def row_line(spec: AnySpec, key: Any, value: Any) -> str:
    known = key._asdict()
    told = {name: content for name, content in value._asdict().items() if known.get(name) != content}
    words = " ".join(f"{name}={_words(spec, name).write(content)}" for name, content in told.items())
    return key_line(spec, key) + ARROW + words


def dump(rows: Rows) -> str:
    lines = [row_line(spec, key, held[key]) for spec, held in rows for key in sorted(held)]
    return "".join(f"{line}\n" for line in lines)


def document(rows: Rows) -> dict[str, list[dict[str, str | int]]]:
    """The same words for machines: by map, one object a row with the fields of key and value; numbers stay numbers."""
    return {spec.name: [_object(spec, key, held[key]) for key in sorted(held)] for spec, held in rows}


def _object(spec: AnySpec, key: Any, value: Any) -> dict[str, str | int]:
    fields = key._asdict() | value._asdict()
    return {
        name: content if (words := _words(spec, name)) is _PLAIN else words.write(content)
        for name, content in fields.items()
    }


def parse(text: str) -> Rows:
    """The inverse of `dump`. Raises ValueError with the line that is none."""
    rows = Rows()
    specs = {spec.name: spec for spec in SYNCED_MAPS}
    for line in text.splitlines():
        try:
            name, _, fields = line.partition(" ")
            spec = specs[name]
            key_words, _, value_words = fields.partition(ARROW.rstrip())
            key = _read(spec, key_words)
            rows.of(spec)[spec.key.row(**key)] = spec.value.row(**_value(spec, key, _read(spec, value_words)))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a row of a map: {line!r}") from error
    return rows


def _read(spec: AnySpec, words: str) -> dict[str, Any]:
    pairs = (word.split("=", 1) for word in words.split())
    return {name: _words(spec, name).read(content) for name, content in pairs}


def _value(spec: AnySpec, key: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    repeated = {name: content for name, content in key.items() if name in spec.value.row._fields}
    return repeated | told
