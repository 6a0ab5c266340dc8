"""The hooks' table of connected UDP sockets, for who ends those whose backend left; see `host.udp_sockets`."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from kbpf.datapath.ebpf.layout import UDP_CONN
from kbpf.datapath.ebpf.maps import BpfMap
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import UdpConnKey, UdpConnValue
from kbpf.model.address import V4_MAPPED_PREFIX
from kbpf.model.sockets import ConnectedSocket

UdpConnMap = BpfMap[UdpConnKey, UdpConnValue]


class ConnectedSockets:
    """Opens the pinned map for each call: a full sync may have replaced it. No map, no sockets. Raises MapError."""

    def __init__(self, bpffs_root: Path) -> None:
        self._pin = Pins(bpffs_root).map(UDP_CONN.name)

    def read(self) -> list[ConnectedSocket]:
        with self._opened() as table:
            return [_socket(key, value) for key, value in table.entries().items()] if table else []

    def forget(self, sockets: Collection[ConnectedSocket]) -> None:
        with self._opened() as table:
            if table is not None:
                table.delete([_key(each) for each in sockets if _is_listed(each, table)])

    @contextmanager
    def _opened(self) -> Iterator[UdpConnMap | None]:
        if not self._pin.exists():
            yield None
            return
        table: UdpConnMap = BpfMap.open(UDP_CONN, self._pin)
        try:
            yield table
        finally:
            table.close()


def _is_listed(each: ConnectedSocket, table: UdpConnMap) -> bool:
    value = table.lookup(_key(each))
    return value is not None and _socket(_key(each), value) == each


def _key(each: ConnectedSocket) -> UdpConnKey:
    return UdpConnKey(each.netns_cookie, each.cookie)


def _socket(key: UdpConnKey, value: UdpConnValue) -> ConnectedSocket:
    frontend, backend = (_short(address) for address in (value.frontend_address, value.backend_address))
    return ConnectedSocket(frontend, value.frontend_port, backend, value.backend_port, *key)


def _short(address: bytes) -> bytes:
    return address.removeprefix(V4_MAPPED_PREFIX)
