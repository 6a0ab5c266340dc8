"""Service ids and backend ids: small numbers that are never given twice while the maps live.

A stale affinity row or a socket's record may name an id long after its row is gone, so the numbers to come are kept in
the config map and only grow. `installed` asks for ids; `adopt` takes over what an earlier process gave.
"""

import struct
from collections.abc import Iterable
from typing import NewType

from kbpf.datapath.ebpf.shapes import FIRST_RESERVED_ID, BackendKey, BackendValue
from kbpf.errors import MapFull

BackendAddress = NewType("BackendAddress", bytes)
"""What a backend id stands for, for ever: address, port and protocol in one, as there are as many as endpoints.

It is `struct backend_address` of the programs, which stands so in each slot.
"""

_STRUCT = struct.Struct(">16sHBx")
_NO_ADDRESS = BackendAddress(bytes(_STRUCT.size))


def backend_address(address: bytes, port: int, protocol: int) -> BackendAddress:
    return BackendAddress(_STRUCT.pack(address, port, protocol))


def backend_row(address: bytes, number: int) -> BackendValue:
    where, port, protocol = _STRUCT.unpack(address)
    return BackendValue(where, port, protocol, number)


class Ids:
    """The ids to come, and which backend has which id and how many users. 0 is never an id."""

    def __init__(self, next_service: int = 1, next_backend: int = 1) -> None:
        self.next_service, self.next_backend = next_service, next_backend
        self._ids: dict[BackendAddress, int] = {}
        self._addresses: dict[int, BackendAddress] = {}
        self._shared: dict[int, int] = {}
        """How many users, where there are several: most backends have one."""
        self._unused: set[int] = set()

    @property
    def to_come(self) -> tuple[int, int]:
        """The next service id and the next backend id."""
        return self.next_service, self.next_backend

    def new_service(self) -> int:
        self.next_service += 1
        return _checked(self.next_service - 1, "service")

    def backend(self, address: BackendAddress) -> int:
        """The id of a backend; a new one if it has none."""
        number = self._ids.get(address)
        if number is None:
            number = _checked(self.next_backend, "backend")
            self.next_backend += 1
            self.adopt_backend(number, address)
        return number

    def address(self, number: int) -> BackendAddress:
        """Nothing but zeroes for a number that is no backend's."""
        return self._addresses.get(number, _NO_ADDRESS)

    def find(self, address: BackendAddress) -> int | None:
        return self._ids.get(address)

    def is_backend(self, number: int) -> bool:
        return number in self._addresses

    def adopt_backend(self, number: int, address: BackendAddress) -> None:
        """Take over an id that the maps hold. Of two for one backend the first stays."""
        if self._ids.setdefault(address, number) == number:
            self._addresses[number] = address
            self._unused.add(number)

    def use(self, numbers: Iterable[int]) -> None:
        """One more service port has these backends."""
        for number in numbers:
            if number in self._unused:
                self._unused.remove(number)
            else:
                self._shared[number] = self._shared.get(number, 1) + 1

    def release(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            users = self._shared.pop(number, 1)
            if users == 1:
                self._unused.add(number)
            elif users > 2:
                self._shared[number] = users - 1

    def drop_unused(self) -> dict[int, BackendAddress]:
        """Forget the backends that no service port has (any more), and say what they were."""
        dropped = {number: self._addresses.pop(number) for number in self._unused}
        for address in dropped.values():
            del self._ids[address]
        self._unused.clear()
        return dropped

    def rows(self, numbers: Iterable[int]) -> dict[BackendKey, BackendValue]:
        return {BackendKey(number): backend_row(self._addresses[number], number) for number in numbers}

    @property
    def used(self) -> Iterable[int]:
        return self._addresses.keys() - self._unused


def _checked(number: int, what: str) -> int:
    if number >= FIRST_RESERVED_ID:
        raise MapFull(f"all {what} ids were given: `kbpf cleanup` and a start begin anew")
    return number
