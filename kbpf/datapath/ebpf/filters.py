"""The packet programs on devices as filters of the traffic control layer, for kernels without TCX links.

A filter holds its program without a pin, and says whose it is: the bpffs root of the kbpf that put it there. That is
how a restarted daemon and `kbpf cleanup` find what is theirs. The filters themselves are netlink's business
(`kbpf/host/clsact.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.links import closing, open_program
from kbpf.datapath.ebpf.uplinks import End, ends
from kbpf.model.device import Device, PacketFilter, Side


class Filters(Protocol):
    """The filters in the place that is kbpf's. Raises OSError."""

    def found(self) -> Sequence[PacketFilter]: ...

    def put(self, device: int, side: Side, program_fd: int, owner: str) -> None:
        """In place of the owner's old one at once."""
        ...

    def remove(self, device: int, side: Side) -> None: ...


class FilteredUplinks:
    def __init__(self, filters: Filters, root: Path) -> None:
        self._filters, self._owner = filters, str(root)

    def attach(self, programs: Path, devices: Sequence[Device]) -> int:
        there = self._ours()
        changed = sum(self._attach(end, programs / end.program, there) for end in ends(devices))
        wanted = {(end.device.index, end.side) for end in ends(devices)}
        return changed + self._remove([place for place in there if place not in wanted])

    def is_attached(self, programs: Path, devices: Sequence[Device]) -> bool:
        there = self._ours()
        return all(there.get((end.device.index, end.side)) == _id(programs / end.program) for end in ends(devices))

    def pins(self, devices: Sequence[Device]) -> frozenset[str]:
        return frozenset()

    def detach(self) -> int:
        return self._remove(list(self._ours()))

    def _ours(self) -> dict[tuple[int, Side], int]:
        """The kernel's number of the program, by place."""
        found = self._filters.found()
        return {(each.device, each.side): each.program_id for each in found if each.owner == self._owner}

    def _attach(self, end: End, program: Path, there: dict[tuple[int, Side], int]) -> bool:
        if there.get((end.device.index, end.side)) == _id(program):
            return False
        with closing(open_program(program)) as program_fd:
            self._filters.put(end.device.index, end.side, program_fd, self._owner)
        return True

    def _remove(self, places: Sequence[tuple[int, Side]]) -> int:
        for device, side in places:
            self._filters.remove(device, side)
        return len(places)


def _id(program: Path) -> int:
    with closing(open_program(program)) as program_fd:
        return libbpf.program_info(program_fd).id
