"""What is pinned below a bpffs root, read as it is found: rows, sizes, attachments. For whoever asks from outside.

`kbpf status`, `explain`, `verify` and `top` read with it beside the daemon or after it; it writes nothing and does not
mind sizes that differ from its own.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kbpf.datapath.ebpf import libbpf, links
from kbpf.datapath.ebpf.filesystem import find_cgroup2
from kbpf.datapath.ebpf.filters import Filters
from kbpf.datapath.ebpf.hooks import HOOKS, NODE_PORT_HOOKS
from kbpf.datapath.ebpf.layout import AFFINITY, CHOICES
from kbpf.datapath.ebpf.maps import BpfMap
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.rows import SYNCED_MAPS, AnySpec, Rows
from kbpf.datapath.ebpf.shapes import ChoiceKey
from kbpf.datapath.interface import MapFill
from kbpf.errors import MapError

UNREAD = frozenset({AFFINITY.name})
"""Clients' rows: as many as there are clients, and nobody asks for them."""
PACKET_PIN = "tc_"


class Attachment(NamedTuple):
    """One program in force, or not. `place`: a cgroup or a network device."""

    hook: str
    place: str
    program_id: int | None

    @property
    def is_of_packets(self) -> bool:
        return self.hook.startswith(PACKET_PIN)


class Found(msgspec.Struct, frozen=True):
    rows: Rows
    fill: dict[str, MapFill]


def is_installed(bpffs_root: Path) -> bool:
    return Pins(bpffs_root).maps.exists()


def other_versions(bpffs_root: Path) -> tuple[str, ...]:
    """Folders of kbpf with another layout of its maps, which this one cannot read."""
    return tuple(map(str, Pins(bpffs_root).other_versions())) if bpffs_root.exists() else ()


def read(bpffs_root: Path) -> Found | None:
    """None: nothing is pinned there. Raises MapError."""
    pins = Pins(bpffs_root)
    if not pins.maps.exists():
        return None
    rows, fill = Rows(), {}
    for spec in SYNCED_MAPS:
        if spec.name not in UNREAD:
            with opened(spec, pins) as found:
                held = rows.of(spec)
                held.update(found.entries())
                fill[spec.name] = MapFill(len(held), found.spec.max_entries)
    return Found(rows, fill)


def read_choices(bpffs_root: Path) -> dict[ChoiceKey, int]:
    """How often each backend of each service was chosen since it first was. Nothing without programs."""
    pins = Pins(bpffs_root)
    if not pins.maps.exists():
        return {}
    with opened(CHOICES, pins) as found:
        return found.sums()


def attachments(bpffs_root: Path, cgroup_root: Path | None, filters: Filters) -> tuple[Attachment, ...]:
    """The cgroup hooks in their order, in force or not, and the packet programs on devices, as links or filters."""
    pins, cgroup = Pins(bpffs_root), cgroup_root or find_cgroup2()
    if cgroup is None or not pins.links.exists():
        return ()
    in_force = links.attached(pins, cgroup)
    wanted = (*(hook.name for hook in HOOKS), *(hook.name for hook in NODE_PORT_HOOKS if hook.name in in_force))
    hooks = tuple(Attachment(name, str(cgroup), in_force.get(name)) for name in wanted)
    return (*hooks, *_packet_programs(pins), *_filters(filters, str(bpffs_root)))


def _packet_programs(pins: Pins) -> Iterator[Attachment]:
    for pin in sorted(pins.links.iterdir()):
        if not pin.name.startswith(PACKET_PIN):
            continue
        hook, _, index = pin.name.rpartition("_")
        link_fd = links.open_link(pin)
        if link_fd is not None:
            with links.closing(link_fd):
                info = libbpf.device_link_info(link_fd)
            yield Attachment(hook, _device_name(int(index)), info.program_id if info.device else None)


def _filters(filters: Filters, owner: str) -> Iterator[Attachment]:
    for each in filters.found():
        if each.owner == owner:
            yield Attachment(f"{PACKET_PIN}{each.side.value}", _device_name(each.device), each.program_id)


def _device_name(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:  # gone since
        return f"device {index}"


class _FoundMap(BpfMap[tuple[int, ...], tuple[int, ...]]):
    """A map of whatever size it has."""

    def sums(self) -> dict[ChoiceKey, int]:
        """Of a map with a counter for each processor."""
        size = self.spec.value.size * libbpf.possible_cpus()
        sums = dict[ChoiceKey, int]()
        for packed in self._packed(size):
            for number, found in enumerate(self.spec.key.unpack_all(packed.keys)):
                each = packed.values[number * size : (number + 1) * size]
                sums[ChoiceKey(*found)] = sum(total for (total,) in self.spec.value.unpack_all(each))
        return sums


@contextmanager
def opened(spec: AnySpec, pins: Pins) -> Iterator[_FoundMap]:
    try:
        with links.closing(libbpf.obj_get(pins.map(spec.name))) as fd:
            entries = libbpf.map_info(fd).max_entries
    except OSError as error:
        raise MapError(f"{spec.name}: cannot open {pins.map(spec.name)}: {error.strerror}") from error
    found = _FoundMap.open(replace(spec, max_entries=entries), pins.map(spec.name))
    try:
        yield found
    finally:
        found.close()
