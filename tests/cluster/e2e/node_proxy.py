"""The proxy of one node, kbpf with either datapath or the real kube-proxy, under the same flags."""

import contextlib
import http.client
import time
from pathlib import Path

from kbpf.demo.cgroups import join
from kbpf.demo.node import Node
from kbpf.demo.proxy import Proxy
from tests.cluster.programs import Program, ProgramFailed
from tests.cluster.proxies import CAUTION, start_kube_proxy

KUBE_PROXY = "kube-proxy"
FLAGS = (
    "--cluster-cidr=10.42.0.0/16,fd42::/16",
    "--iptables-min-sync-period=100ms",
    "--iptables-sync-period=5s",
    "--healthz-bind-address=0.0.0.0:10256",
)
START_WITHIN_S = 60


class NodeProxy:
    """`kind` is ebpf, iptables or kube-proxy."""

    def __init__(self, kind: str, node: Node, kubeconfig: Path, log: Path) -> None:
        self.kind = kind
        self.node = node
        self.log = log
        self._kubeconfig = kubeconfig
        own = (f"--kubeconfig={kubeconfig}", f"--datapath={kind}", "--fallback=none")
        self._kbpf = None if kind == KUBE_PROXY else Proxy(node, None, log, *own, *CAUTION, *FLAGS)
        self._kube_proxy: Program | None = None

    def start(self) -> None:
        """Returns when it has done its first sync."""
        if self._kbpf:
            self._kbpf.start()
        else:
            flags = [f"--hostname-override={self.node.name}", *FLAGS]
            self._kube_proxy = start_kube_proxy(self.log, self.node.namespace.name, self._kubeconfig, flags)
            join(self.node.cgroup / "host", self._kube_proxy.process.pid)
        deadline = time.monotonic() + START_WITHIN_S
        while self.get(10256, "/healthz") != http.client.OK:
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{self.kind} on {self.node.name} is not healthy, see {self.log}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Its rules and programs stay."""
        if self._kbpf:
            assert self._kbpf.terminate() == 0, self._kbpf.last_words()
        elif self._kube_proxy:
            self._kube_proxy.stop()

    def remove(self) -> None:
        """What kube-proxy has written goes with the namespace."""
        self.stop()
        if self._kbpf:
            self._kbpf.cleanup()

    def get(self, port: int, path: str) -> int | None:
        """The status that a server on the node's loopback answers; None when nobody listens."""
        return self.read(port, path)[0]

    def read(self, port: int, path: str) -> tuple[int | None, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        with contextlib.closing(connection):
            try:
                with self.node.namespace.entered():
                    connection.connect()
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, response.read().decode()
            except (OSError, http.client.HTTPException):
                return None, ""
