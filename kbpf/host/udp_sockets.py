"""Ends connected UDP sockets whose backend left: in the network namespaces where they live, by their exact cookies.

Nothing stands between such a socket and its backend that could lead it elsewhere. `udp_cleanup` calls this after a
sync with the stale ones; a socket that reached the same backend without a Service is not among them, and lives on.
"""

import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kbpf.errors import HostError
from kbpf.host import namespaces
from kbpf.host.netlink import NetlinkSocket
from kbpf.host.socket_diag import NETLINK_SOCK_DIAG, DiagSocket, connected_udp, end
from kbpf.model.sockets import ConnectedSocket

log = logging.getLogger(__name__)

SO_COOKIE = 57
GONE = (errno.ENOENT, errno.ESTALE)
"""It was closed, or its cookie is another's by now."""

ByNamespace = dict[int, dict[int, ConnectedSocket]]
"""Sockets by the cookie of their namespace and their own."""


class SocketTable(Protocol):
    """The connected UDP sockets that were translated. Both methods raise KbpfError."""

    def read(self) -> Iterable[ConnectedSocket]: ...

    def forget(self, sockets: Collection[ConnectedSocket]) -> None:
        """Those that have connected anew meanwhile stay."""
        ...


class UdpSockets:
    def __init__(self, table: SocketTable, netns_cookie: Callable[[], int]) -> None:
        """`netns_cookie` tells the one of the calling thread's namespace, 0 where the kernel does not."""
        self._table = table
        self._netns_cookie = netns_cookie

    def read(self) -> Iterable[ConnectedSocket]:
        return self._table.read()

    def end(self, sockets: Iterable[ConnectedSocket]) -> int:
        """Returns how many were still there. Raises KbpfError."""
        wanted: ByNamespace = {}
        for each in sockets:
            wanted.setdefault(each.netns_cookie, {})[each.cookie] = each
        try:
            ended = self._end_here(wanted) if wanted else 0
            return ended + (namespaces.in_thread(lambda: self._end_elsewhere(wanted)) if wanted else 0)
        except OSError as error:
            raise HostError(f"cannot end connected UDP sockets: {error.strerror or error}") from error

    def _end_elsewhere(self, wanted: ByNamespace) -> int:
        ended = 0
        for namespace in namespaces.others():
            try:
                namespaces.enter(namespace)
            except OSError as error:
                # Its last process has just ended, or it is a name that stands for no namespace any more.
                log.debug(f"{namespace} is passed over: {error.strerror}")
                continue
            ended += self._end_here(wanted)
            if not wanted:
                return ended
        left = [each for found in wanted.values() for each in found.values()]
        log.info("%d connected UDP sockets are closed, or in network namespaces that cannot be seen", len(left))
        self._table.forget(left)
        return ended

    def _end_here(self, wanted: ByNamespace) -> int:
        """Takes those of the calling thread's namespace out of `wanted`."""
        cookie = self._netns_cookie()
        sockets = wanted.pop(cookie, {}) if cookie else _flat(wanted)
        if not sockets:
            return 0
        with NetlinkSocket(NETLINK_SOCK_DIAG) as netlink:
            found = [each for each in connected_udp(netlink) if _is_still(each, sockets.get(each.cookie))]
            # First: who is ended connects again at once, and then has a row that must stay.
            self._table.forget(sockets.values() if cookie else [sockets[each.cookie] for each in found])
            return len(found) - len(_refused(end(netlink, found)))


def _flat(wanted: ByNamespace) -> dict[int, ConnectedSocket]:
    """Not knowing where we are, we look for all of them: cookies of sockets are unique on a machine."""
    return {cookie: each for found in wanted.values() for cookie, each in found.items()}


def _is_still(found: DiagSocket, listed: ConnectedSocket | None) -> bool:
    """Sockets leave their peers without a hook that could tell."""
    return listed is not None and (found.peer, found.peer_port) == (listed.reply_source, listed.reply_port)


def _refused(errors: list[int]) -> list[int]:
    wrong = [number for number in errors if number not in GONE]
    if wrong:
        raise OSError(wrong[0], os.strerror(wrong[0]))
    return errors


def why_sockets_cannot_be_ended() -> str:
    """Tried on a socket of our own, in a thread that enters its own namespace; empty when it works."""
    try:
        namespaces.in_thread(_end_own)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _end_own() -> None:
    namespaces.enter(namespaces.OWN)
    with socket.socket(type=socket.SOCK_DGRAM) as own, NetlinkSocket(NETLINK_SOCK_DIAG) as netlink:
        own.connect(("127.0.0.1", 9))
        (cookie,) = struct.unpack("=Q", own.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))
        errors = end(netlink, [each for each in connected_udp(netlink) if each.cookie == cookie])
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))
        try:
            own.getpeername()
        except OSError:
            return
        raise OSError(errno.EOPNOTSUPP, "the kernel ends no sockets (CONFIG_INET_DIAG_DESTROY)")
