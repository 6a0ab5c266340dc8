"""The real kube-proxy on a bed: it writes its rules, and ends; rules need no process to go on.

It is fed by a real API server, which grows with the sizes that are measured, so beds are furnished from small to large.
"""

from contextlib import ExitStack
from pathlib import Path

from tests.bench.bed import Bed
from tests.bench.cluster_objects import NODE, NODE_NAME
from tests.bench.targets import TARGET_ADDRESS, TARGET_PORT, crowd, target
from tests.bench.usage import rest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.proxies import start_kube_proxy
from tests.conntrack_entries import forget_unanswered

FLAGS = (f"--hostname-override={NODE_NAME}", "--cluster-cidr=10.42.0.0/16", "--nodeport-addresses=primary")
QUIET_S = 3.0
"""Longer than the least time between two syncs: the first one is not the last, and another may be running."""


class KubeProxy:
    def __init__(self, folder: Path, stack: ExitStack, timeout_s: float) -> None:
        self._folder, self._timeout_s = folder, timeout_s
        self._control_plane = ControlPlane(folder)
        stack.callback(self._control_plane.stop)
        self._control_plane.api.put([NODE, *target(has_node_port=True)])
        self._size = 0

    def furnish(self, bed: Bed, mode: str, services: int) -> None:
        """Leave the rules of kube-proxy in this mode on the bed's node."""
        self._control_plane.api.put(crowd(self._size, services - 1))
        self._size = max(self._size, services - 1)
        namespace = bed.node.namespace
        relay = Relay(namespace, self._control_plane.port)
        kubeconfig = self._control_plane.kubeconfig(relay.port)
        log = self._folder / f"{bed.tag}.log"
        program = start_kube_proxy(log, namespace.name, kubeconfig, (*FLAGS, f"--proxy-mode={mode}"))
        try:
            program.wait_until(
                lambda: bed.is_served(TARGET_ADDRESS, TARGET_PORT), "served Service", timeout_s=self._timeout_s
            )
            rest(program.process.pid, QUIET_S, self._timeout_s)
        finally:
            program.stop()
            relay.stop()
        with namespace.entered():
            forget_unanswered()
