"""The control of tests/kernel/test_many_services.py: the real kube-proxy, one of whose many Services changes.

There are fewer of them, and the rules are legacy ones: its one transaction for 10,000 Services takes iptables-nft
minutes, and filling the API server with them as long again.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.demo.cgroups import join
from kbpf.demo.proxy import Proxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.proxies import iptables_programs, start_kube_proxy
from tests.kernel.many_services import BEFORE, Objects, many, one, play, serve
from tests.kernel.world import World, standing_world
from tests.manifests import document
from tests.scenarios.harness.cluster import NODE_NAME, ZONES
from tests.scenarios.harness.format import NodeEntry
from tests.scenarios.harness.kube_proxy import FLAGS
from tests.scenarios.harness.objects import node_object

pytestmark = [pytest.mark.root, pytest.mark.parity]

NUMBER = 2000


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    running = ControlPlane(tmp_path)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with standing_world(tmp_path) as built:
        yield built


def test_one_of_many_services_of_kube_proxy_changes(world: World, control_plane: ControlPlane, tmp_path: Path) -> None:
    def put(objects: Objects) -> None:
        control_plane.api.put([document(thing) for thing in objects])

    control_plane.api.put([node_object(NodeEntry(zone=ZONES[NODE_NAME]))])
    put([*many(NUMBER), *one(BEFORE)])
    namespace = world.node.namespace
    relay = Relay(namespace, control_plane.port)
    path, kubeconfig = iptables_programs(tmp_path, "legacy"), control_plane.kubeconfig(relay.port)
    program = start_kube_proxy(tmp_path / "kube-proxy.log", namespace.name, kubeconfig, FLAGS, path=path)
    try:
        join(world.node.cgroup / "host", program.process.pid)
        serve(world)
        play(world, NUMBER, put, timeout_s=30)
    finally:
        program.stop()
        relay.stop()
        Proxy(world.node, None, tmp_path / "kbpf.log").cleanup()  # which knows kube-proxy's chains
