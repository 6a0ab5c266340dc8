"""The packet programs on devices: two TCX links each, pinned, beside whatever others attached there.

As `links` does for the cgroup hooks, `attach` makes true what is asked and changes nothing that is already so. A link
ends by itself when its device goes. Called by `programs`.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.hooks import TCX_EGRESS, TCX_INGRESS
from kbpf.datapath.ebpf.links import closing, open_link, open_program, remove_link
from kbpf.datapath.ebpf.pins import Pins
from kbpf.model.device import Device

_PIN = re.compile(r"tc_(in|e)gress_\d+")


class _End(NamedTuple):
    """One link to be."""

    device: Device
    name: str
    attach_type: int

    @property
    def program(self) -> str:
        return self.name if self.device.has_ethernet_header else f"{self.name}_raw"

    @property
    def pin(self) -> str:
        # Names of devices may have dots, which a bpffs refuses.
        return f"{self.name}_{self.device.index}"


def attach(pins: Pins, programs: Path, devices: Sequence[Device]) -> int:
    """Run the programs pinned in `programs` on these devices and no others; returns how many links that changed."""
    ends = list(_ends(devices))
    changed = sum(_attach(pins.link(end.pin), end, programs / end.program) for end in ends)
    wanted = {end.pin for end in ends}
    return changed + sum(_detach(pin) for pin in _pins(pins) if pin.name not in wanted)


def is_attached(pins: Pins, programs: Path, devices: Sequence[Device]) -> bool:
    """Are these very programs in force on these devices?"""
    return all(_is_in_force(pins.link(end.pin), end, programs / end.program) for end in _ends(devices))


def pin_names(devices: Sequence[Device]) -> frozenset[str]:
    return frozenset(end.pin for end in _ends(devices))


def _ends(devices: Sequence[Device]) -> Iterator[_End]:
    for device in devices:
        # Egress first: whatever is translated can be translated back.
        yield _End(device, "tc_egress", TCX_EGRESS)
        yield _End(device, "tc_ingress", TCX_INGRESS)


def _attach(pin: Path, end: _End, program: Path) -> bool:
    with closing(open_program(program)) as program_fd:
        link_fd = open_link(pin)
        if link_fd is None:
            _create(pin, end, program_fd)
            return True
        with closing(link_fd):
            info = libbpf.device_link_info(link_fd)
            if (info.device, info.attach_type) != (end.device.index, end.attach_type):
                remove_link(pin, link_fd)
                _create(pin, end, program_fd)
                return True
            if info.program_id == libbpf.program_info(program_fd).id:
                return False
            libbpf.link_update(link_fd, program_fd)
            return True


def _create(pin: Path, end: _End, program_fd: int) -> None:
    with closing(libbpf.link_create(program_fd, end.device.index, end.attach_type)) as link_fd:
        libbpf.obj_pin(link_fd, pin)


def _is_in_force(pin: Path, end: _End, program: Path) -> bool:
    link_fd = open_link(pin)
    if link_fd is None:
        return False
    with closing(link_fd), closing(open_program(program)) as program_fd:
        info = libbpf.device_link_info(link_fd)
        wanted = (end.device.index, end.attach_type, libbpf.program_info(program_fd).id)
        return (info.device, info.attach_type, info.program_id) == wanted


def _pins(pins: Pins) -> list[Path]:
    return [pin for pin in sorted(pins.links.iterdir()) if _PIN.fullmatch(pin.name)] if pins.links.exists() else []


def _detach(pin: Path) -> bool:
    link_fd = open_link(pin)
    if link_fd is None:
        return False
    with closing(link_fd):
        remove_link(pin, link_fd)
    return True
