"""Network namespaces as nodes for a proxy whose rules are read, not used: loopback and one interface with addresses.

`Relay` lets a proxy inside reach the API server on the machine's loopback, at a port of the namespace's own loopback,
so that no interface or address has to be added for it.
"""

import contextlib
import ctypes
import os
import selectors
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

CLONE_NEWNET = 0x40000000
BUFFER = 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class NodeNamespace:
    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        self.name = name
        ip("netns", "add", name)
        try:
            self._fill(addresses)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        ip("netns", "delete", self.name)

    def _fill(self, addresses: Sequence[str]) -> None:
        name = self.name
        ip("-n", name, "link", "set", "lo", "up")
        # Both ends stay here: the interface is there for its addresses.
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "wire")
        for address in addresses:
            # Without "nodad" an IPv6 address is unusable for a second, and proxies that look would not see it.
            ip("-n", name, "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
        for interface in ("wire", "eth0"):
            ip("-n", name, "link", "set", interface, "up")


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
    """The calling thread is in the network namespace; sockets made meanwhile stay there."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(Path("/run/netns", namespace), os.O_RDONLY)
        try:
            _setns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(own)
    finally:
        os.close(own)


def _setns(descriptor: int) -> None:
    if libc.setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class Relay:
    """Carries connections from a port of a namespace's loopback to a port of this namespace's."""

    def __init__(self, namespace: str, target_port: int) -> None:
        self.target_port = target_port
        with entered(namespace):
            self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.peers: dict[socket.socket, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wakeup, self.stopped = socket.socketpair()
        self.selector.register(self.stopped, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._run, name=f"relay-{namespace}", daemon=True)
        self.thread.start()

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
                    return
                if ready is self.listener:
                    self._accept()
                elif ready in self.peers:
                    self._carry(ready)

    def _accept(self) -> None:
        inner, _ = self.listener.accept()
        try:
            outer = socket.create_connection(("127.0.0.1", self.target_port))
        except OSError:
            inner.close()
            return
        self.peers[inner], self.peers[outer] = outer, inner
        for one in (inner, outer):
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
