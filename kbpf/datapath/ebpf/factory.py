"""Builds the real eBPF datapath out of its parts; called by the server and by `kbpf cleanup`, `dump` and `probe`."""

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from kbpf.clock import Clock, SystemClock
from kbpf.datapath.ebpf import probe
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.collector import FlowTimeouts
from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.filters import FilteredUplinks, Filters
from kbpf.datapath.ebpf.layout import PACKET_STATS, STATS
from kbpf.datapath.ebpf.maps import Counters, Maps
from kbpf.datapath.ebpf.node import NodeSettings
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.programs import HookOptions, PacketPath, PinnedPrograms
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.uplinks import PreferredUplinks, TcxLinks, Way
from kbpf.errors import MapError
from kbpf.model.address import Address
from kbpf.model.device import Device

_SO_NETNS_COOKIE = 71

CountersName = Literal["stats", "packet_stats"]


def create(
    bpffs_root: Path,
    cgroup_root: Path | None,
    local_addresses: Callable[[], Mapping[Address, LocalFlag]],
    filters: Filters,
    *,
    uplinks: Callable[[], Sequence[Device]] = tuple,
    ways: Sequence[Way] = tuple(Way),
    node: NodeSettings | None = None,
    masquerade_all: bool = False,
    can_end_sockets: bool = True,
    node_sockets_only: bool = False,
    holds_node_ports: bool = False,
    sizes: Mapping[str, int] | None = None,
    clock: Clock | None = None,
    flow_timeouts: FlowTimeouts | None = None,
) -> EbpfDatapath:
    """The datapath of the node whose network namespace this process is in.

    No `cgroup_root`: the host's cgroup2 mount. No `uplinks`: packets from elsewhere are left alone. `ways` to put
    programs on them may be tried. `node_sockets_only`: rules serve the sockets of pods. `holds_node_ports`: sockets of
    the node get no node port. `sizes` gives max_entries by map name where it is not the default.
    """
    has_set_retval = probe.has_set_retval()
    packet_path = _packet_path(Pins(bpffs_root), filters, uplinks, ways)
    hooks = HookOptions(has_set_retval, node_sockets_only, holds_node_ports)
    programs = PinnedPrograms(bpffs_root, cgroup_root, packet_path, hooks=hooks, sizes=sizes)
    return EbpfDatapath(
        programs,
        DeferSettings(masquerade_all, can_reject=has_set_retval, can_end_sockets=can_end_sockets),
        local_addresses,
        replace(node or NodeSettings(), netns_cookie=netns_cookie()),
        clock or SystemClock(),
        flow_timeouts,
    )


def _packet_path(
    pins: Pins, filters: Filters, devices: Callable[[], Sequence[Device]], ways: Sequence[Way]
) -> PacketPath:
    found = probe.packet_path(filters, ways)
    way = probe.way_onto_devices(found)
    links, filtered = TcxLinks(pins), FilteredUplinks(filters, pins.root)
    uplinks = PreferredUplinks(filtered, links) if way is Way.CLSACT else PreferredUplinks(links, filtered)
    return PacketPath(devices, uplinks, way is not None, probe.has_coarse_clock(), found)


def results(bpffs_root: Path, counters: CountersName) -> dict[str, int]:
    """What calls of the hooks ("stats") or packets ("packet_stats") came to, so far; nothing where no programs are.

    Safe in any thread.
    """
    spec = STATS if counters == "stats" else PACKET_STATS
    try:
        opened = Counters.open(spec, Pins(bpffs_root).map(spec.name))
    except MapError:
        return {}
    try:
        return {reason.name.lower().replace("_", "-"): total for reason, total in opened.read().items()}
    finally:
        opened.close()


def open_maps(bpffs_root: Path) -> Maps | None:
    """The maps as they are pinned now; None before the first load. Raises MapError."""
    pins = Pins(bpffs_root)
    return Maps.open(pins) if pins.maps.exists() else None


def netns_cookie() -> int:
    """The kernel's number for this process's network namespace; 0 where it does not tell (before Linux 5.14)."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            packed = asked.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:
        return 0
    return int(struct.unpack("=Q", packed)[0])
