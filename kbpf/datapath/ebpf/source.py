"""What the programs are made from: C texts, the definitions they are compiled with, and the hash of all.

BCC rewrites map operations in its main file only, so the project's own headers are put in their places here, with #line
directives: the compiler's messages name the real files. The hash names a build; equal hash, equal programs.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kbpf.datapath.ebpf.hooks import HOOKS, NODE_PORT_HOOKS, OTHER_PACKET_PROGRAMS, PROGRAM_SCHED_CLS, Hook
from kbpf.datapath.ebpf.layout import specs
from kbpf.datapath.ebpf.packing import MapSpec
from kbpf.datapath.ebpf.pins import Pins
from kbpf.errors import UsageError

_PACKAGE = Path(__file__).parents[2]
_INCLUDE = re.compile(r'#include "([\w./]+)"')
_SAFE_PATH = re.compile(r"[\w./+@-]+", re.ASCII)


def bpf_folder() -> Path:
    """`bpf/`: inside an installed package, beside the package in a checkout."""
    installed = _PACKAGE / "bpf"
    return installed if installed.is_dir() else _PACKAGE.parent / "bpf"


class Unit(NamedTuple):
    """One text, compiled by itself, and the programs in it. Units share the maps."""

    text: str
    programs: tuple[Hook, ...]


class Build(msgspec.Struct, frozen=True):
    """A set of programs to be: the same for the same code, sizes, kernel features and root."""

    maps: tuple[MapSpec[Any, Any], ...]
    map_unit: Unit
    """Makes the maps and has no program."""
    units: tuple[Unit, ...]
    flags: tuple[str, ...]

    @property
    def programs(self) -> tuple[Hook, ...]:
        return tuple(program for unit in self.units for program in unit.programs)

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps([self.units, self.flags]).encode()).hexdigest()[:16]


def describe(
    pins: Pins,
    sizes: Mapping[str, int],
    *,
    has_set_retval: bool,
    node_sockets_only: bool = False,
    holds_node_ports: bool = False,
    has_coarse_clock: bool = False,
    packet_programs: Collection[str] = (),
    folder: Path | None = None,
) -> Build:
    """`sizes` gives max_entries by map name where it is not the default.

    `node_sockets_only`: sockets of pods are left alone. `holds_node_ports`: no socket of the node gets a node port.
    `packet_programs` are the names of those to build; none: packets from elsewhere are left alone.
    """
    if not _SAFE_PATH.fullmatch(str(pins.root)):
        raise UsageError(f"--bpffs-root {pins.root}: only letters, digits and ._/+@- can be compiled in")
    folder = folder or bpf_folder()
    maps = specs(sizes)
    definitions = {
        "MAPS_PATH": f'"{pins.maps}"',
        "HAVE_SET_RETVAL": int(has_set_retval),
        "NODE_SOCKETS_ONLY": int(node_sockets_only),
        "HOLD_NODE_PORTS": int(holds_node_ports),
        "HAVE_COARSE_CLOCK": int(has_coarse_clock),
        **{f"HAVE_{name.upper()}": int(name in packet_programs) for name in OTHER_PACKET_PROGRAMS},
        **{f"{spec.name.upper()}_ENTRIES": spec.max_entries for spec in maps},
    }
    flags = tuple(f"-D{name}={value}" for name, value in definitions.items())
    units = [Unit(amalgamated(folder / "sock.c"), HOOKS + (NODE_PORT_HOOKS if holds_node_ports else ()))]
    if packet_programs:
        programs = tuple(Hook(name, PROGRAM_SCHED_CLS, 0) for name in sorted(packet_programs))
        units.append(Unit(amalgamated(folder / "tc.c"), programs))
    return Build(maps, Unit(amalgamated(folder / "maps.c"), ()), tuple(units), flags)


def amalgamated(path: Path) -> str:
    """The text of a C file with its own headers inside it, each once."""
    return "\n".join(_lines(path, set())) + "\n"


def _lines(path: Path, seen: set[Path]) -> Iterator[str]:
    seen.add(path)
    yield f'#line 1 "{path.name}"'
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        include = _INCLUDE.fullmatch(line)
        if include is None:
            yield line
            continue
        header = path.parent / include[1]
        if header not in seen:
            yield from _lines(header, seen)
        yield f'#line {number + 1} "{path.name}"'
