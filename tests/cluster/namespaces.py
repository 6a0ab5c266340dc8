"""Network namespaces as nodes for a proxy whose rules are read, not used: loopback and one interface with addresses.

`Relay` lets a proxy inside reach the API server on the machine's loopback, at a port of the namespace's own loopback,
so that no interface or address has to be added for it.
"""

import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import nullcontext

from kbpf.demo.namespaces import Namespace

BUFFER = 1 << 18


def create_node(name: str, addresses: Sequence[str]) -> Namespace:
    node = Namespace(name)
    node.create()
    # Both ends of the cable stay here: the interface is there for its addresses.
    node.ip("link add eth0 type veth peer name wire", "link set wire up", "link set eth0 up")
    node.ip(*(f"address add {address} dev eth0" for address in addresses))
    return node


class Relay:
    """Carries connections from a port of a namespace's loopback (None: this one's) to a port of this namespace's."""

    def __init__(self, namespace: Namespace | None, target_port: int) -> None:
        self.target_port = target_port
        self.is_cut = False
        with namespace.entered() if namespace else nullcontext():
            self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.peers: dict[socket.socket, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wakeup, self.stopped = socket.socketpair()
        self.selector.register(self.stopped, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self.thread.start()

    def cut(self) -> None:
        """Break all connections, and every new one until `mend`."""
        self.is_cut = True
        self.wakeup.send(b"!")

    def mend(self) -> None:
        self.is_cut = False

    def stop(self) -> None:
        self.wakeup.close()
        self.thread.join()
        self.stopped.close()
        self.listener.close()
        for one in list(self.peers):
            one.close()
        self.selector.close()

    def _run(self) -> None:
        while True:
            for key, _ in self.selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self.stopped:
                    if not self.stopped.recv(1):
                        return
                    self._break_all()
                    break
                if ready is self.listener:
                    self._accept()
                elif ready in self.peers:
                    self._carry(ready)

    def _break_all(self) -> None:
        for one in list(self.peers):
            del self.peers[one]
            self.selector.unregister(one)
            one.close()

    def _accept(self) -> None:
        inner, _ = self.listener.accept()
        if self.is_cut:
            inner.close()
            return
        try:
            outer = socket.create_connection(("127.0.0.1", self.target_port))
        except OSError:
            inner.close()
            return
        self.peers[inner], self.peers[outer] = outer, inner
        for one in (inner, outer):
            # As both ends would talk to each other: else each small piece waits 40 ms for the other's acknowledgement.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(one, selectors.EVENT_READ)

    def _carry(self, source: socket.socket) -> None:
        target = self.peers[source]
        try:
            content = source.recv(BUFFER)
            if content:
                target.sendall(content)
                return
        except OSError:
            pass  # Either side has gone: both are closed below, and the proxy connects anew.
        for one in (source, target):
            del self.peers[one]
            self.selector.unregister(one)
            one.close()
