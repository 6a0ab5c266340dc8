"""The packet programs on devices: two on each, beside whatever others put there.

As `links` does for the cgroup hooks, `attach` makes true what is asked and changes nothing that is already so. What is
on a device goes with it. `TcxLinks` needs Linux 6.6; `filters` is the other way. Called by `programs`.
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.hooks import PACKET_PROGRAMS, TCX_EGRESS, TCX_INGRESS
from kbpf.datapath.ebpf.links import closing, open_link, open_program, remove_link
from kbpf.datapath.ebpf.pins import Pins
from kbpf.model.device import Device, Side

_ATTACH_TYPES = {Side.INGRESS: TCX_INGRESS, Side.EGRESS: TCX_EGRESS}
_PIN = re.compile(r"tc_(in|e)gress_\d+")


class Way(Enum):
    """How programs get onto devices, the better one first."""

    TCX = "tcx"
    CLSACT = "clsact"


class Uplinks(Protocol):
    """One way to put programs on devices. Raises OSError."""

    def attach(self, programs: Path, devices: Sequence[Device]) -> int:
        """Run the programs pinned in `programs` on these devices and no others; returns how many of them changed."""
        ...

    def is_attached(self, programs: Path, devices: Sequence[Device]) -> bool:
        """Are these very programs in force on these devices?"""
        ...

    def pins(self, devices: Sequence[Device]) -> frozenset[str]:
        """The names of the links that must be pinned for them."""
        ...

    def detach(self) -> int:
        """From every device; returns how many programs that were."""
        ...


class End(NamedTuple):
    """Where a program is to be."""

    device: Device
    side: Side

    @property
    def program(self) -> str:
        header = "" if self.device.has_ethernet_header else "_raw"
        if self.side is Side.EGRESS:
            return f"tc_egress{header}"
        pods = "_pods" if self.device.is_of_pods else ""
        return f"tc_ingress{pods}{'_bridge' if self.device.is_bridge else header}"


def ends(devices: Sequence[Device]) -> Iterator[End]:
    for device in devices:
        # Egress first: whatever is translated can be translated back.
        yield End(device, Side.EGRESS)
        yield End(device, Side.INGRESS)


def programs_for(devices: Sequence[Device]) -> frozenset[str]:
    """Those of usual devices always, if any, so that another uplink of that kind is no other build."""
    return frozenset((*PACKET_PROGRAMS, *(end.program for end in ends(devices)))) if devices else frozenset()


class PreferredUplinks:
    """The first way, and nothing left of the other: a node may have been served by that before."""

    def __init__(self, preferred: Uplinks, other: Uplinks) -> None:
        self._preferred, self._other = preferred, other

    def attach(self, programs: Path, devices: Sequence[Device]) -> int:
        # In between, the second program to see a packet finds nothing in it to translate.
        return self._preferred.attach(programs, devices) + self._other.detach()

    def is_attached(self, programs: Path, devices: Sequence[Device]) -> bool:
        return self._preferred.is_attached(programs, devices)

    def pins(self, devices: Sequence[Device]) -> frozenset[str]:
        return self._preferred.pins(devices)

    def detach(self) -> int:
        return self._preferred.detach() + self._other.detach()


class TcxLinks:
    """Links, pinned by the index of their device."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins

    def attach(self, programs: Path, devices: Sequence[Device]) -> int:
        wanted = list(ends(devices))
        changed = sum(_attach(self._pin(end), end, programs / end.program) for end in wanted)
        return changed + self._detach_except({self._pin(end) for end in wanted})

    def is_attached(self, programs: Path, devices: Sequence[Device]) -> bool:
        return all(_is_in_force(self._pin(end), end, programs / end.program) for end in ends(devices))

    def pins(self, devices: Sequence[Device]) -> frozenset[str]:
        return frozenset(self._pin(end).name for end in ends(devices))

    def detach(self) -> int:
        return self._detach_except(set())

    def _pin(self, end: End) -> Path:
        # Not by name: names of devices may have dots, which a bpffs refuses.
        return self._pins.link(f"tc_{end.side.value}_{end.device.index}")

    def _detach_except(self, wanted: set[Path]) -> int:
        folder = self._pins.links
        pins = [pin for pin in sorted(folder.iterdir()) if _PIN.fullmatch(pin.name)] if folder.exists() else []
        return sum(_detach(pin) for pin in pins if pin not in wanted)


def _attach(pin: Path, end: End, program: Path) -> bool:
    with closing(open_program(program)) as program_fd:
        link_fd = open_link(pin)
        if link_fd is None:
            _create(pin, end, program_fd)
            return True
        with closing(link_fd):
            info = libbpf.device_link_info(link_fd)
            if (info.device, info.attach_type) != (end.device.index, _ATTACH_TYPES[end.side]):
                remove_link(pin, link_fd)
                _create(pin, end, program_fd)
                return True
            if info.program_id == libbpf.program_info(program_fd).id:
                return False
            libbpf.link_update(link_fd, program_fd)
            return True


def _create(pin: Path, end: End, program_fd: int) -> None:
    with closing(libbpf.link_create(program_fd, end.device.index, _ATTACH_TYPES[end.side])) as link_fd:
        libbpf.obj_pin(link_fd, pin)


def _is_in_force(pin: Path, end: End, program: Path) -> bool:
    link_fd = open_link(pin)
    if link_fd is None:
        return False
    with closing(link_fd), closing(open_program(program)) as program_fd:
        info = libbpf.device_link_info(link_fd)
        wanted = (end.device.index, _ATTACH_TYPES[end.side], libbpf.program_info(program_fd).id)
        return (info.device, info.attach_type, info.program_id) == wanted


def _detach(pin: Path) -> bool:
    link_fd = open_link(pin)
    if link_fd is None:
        return False
    with closing(link_fd):
        remove_link(pin, link_fd)
    return True
