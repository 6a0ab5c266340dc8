"""The real kube-proxy as the proxy of a kernel engine: the control that keeps the scenarios honest.

It runs on n1 of the world and is fed by a real API server, through the marker of the parity tests: when that shows in
the rules, so does everything before it. A marker is put twice, because a sync forgets UDP flows after it has written
its rules: when the second one shows, the first sync is over.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kbpf.demo.cgroups import join
from tests.cluster.api import Refused
from tests.cluster.contents import Contents
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.proxies import start_kube_proxy
from tests.parity import rules
from tests.parity.marker import marker, shows
from tests.scenarios.harness.cluster import CLUSTER_CIDR, NODE_NAME, ZONES
from tests.scenarios.harness.engine import NotShown
from tests.scenarios.harness.format import NodeEntry
from tests.scenarios.harness.objects import ObjectKey, Tree, node_object
from tests.scenarios.harness.world import World

PATIENCE_S = 20.0
FLAGS = (
    f"--hostname-override={NODE_NAME}",
    f"--cluster-cidr={','.join(CLUSTER_CIDR.values())}",
    "--iptables-min-sync-period=0s",
)
NODE_PATIENCE_S = 0.5
"""No marker tells when a changed Node is in force; it is watched on a line of its own."""


class KubeProxy:
    """Started by its constructor; its rules go with the world."""

    name = "kube-proxy"
    translates_sockets = False

    def __init__(
        self, world: World, control_plane: ControlPlane, directory: Path, held: Callable[[], list[str]]
    ) -> None:
        """`held` tells what the kernel holds, a line an entry, the same line for the same state."""
        self._namespace = world.node.namespace
        self._held = held
        self._node = node_object(NodeEntry(zone=ZONES[NODE_NAME]))
        self._contents = Contents(control_plane.api)
        # The Node moves while kube-proxy runs, which may have missed where it was before: tests/parity/comparison.py.
        self._contents.show([node_object(NodeEntry(zone="elsewhere"))], last=marker(0))
        self._relay = Relay(self._namespace, control_plane.port)
        kubeconfig = control_plane.kubeconfig(self._relay.port)
        self._program = start_kube_proxy(directory / "kube-proxy.log", self._namespace.name, kubeconfig, FLAGS)
        join(world.node.cgroup / "host", self._program.process.pid)
        self._wait(0)
        self._contents.show([self._node], last=marker(0))
        time.sleep(NODE_PATIENCE_S)
        self._held_at_start = held()

    def apply(self, objects: dict[ObjectKey, Tree]) -> None:
        node = next((tree for key, tree in objects.items() if key.kind == "Node"), self._node)
        others = [tree for key, tree in objects.items() if key.kind != "Node"]
        for step in (1, 0):
            try:
                self._contents.show([node, *others], last=marker(step))
            except Refused as refusal:
                raise NotShown(f"the API server refuses it: {refusal}") from refusal
            self._wait(step)
        if node != self._node:
            self._node = node
            time.sleep(NODE_PATIENCE_S)

    def _wait(self, step: int) -> None:
        for family in rules.COMMANDS:
            self._program.wait_until(
                lambda family=family: shows(rules.read(self._namespace.name, family), family, step),  # type: ignore[misc]
                f"{family} rules of the change",
                timeout_s=PATIENCE_S,
            )

    def leftovers(self) -> str:
        return "\n".join((Counter(self._held()) - Counter(self._held_at_start)).elements())

    def stop(self) -> None:
        self._program.stop()
        self._relay.stop()
