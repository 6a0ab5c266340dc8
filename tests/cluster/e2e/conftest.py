"""One control plane with the real EndpointSlice controllers, and a cluster for each pair of proxies on its two nodes.

KBPF_CLUSTER_PROXIES names other pairs than kbpf's: `kube-proxy,kube-proxy` plays the same tests with the original. The
end of a run lists what it showed by the numbers of cases.yaml.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.controllers import start_controllers
from tests.cluster.e2e.cluster import Cluster
from tests.cluster.e2e.node_proxy import NodeProxy
from tests.cluster.e2e.pods import NAMESPACE
from tests.cluster.e2e.topology import Topology
from tests.cluster.namespaces import Relay
from tests.conftest import RUN

PAIRS = os.environ.get("KBPF_CLUSTER_PROXIES", "ebpf,iptables iptables,ebpf").split()
CASES: dict[int, str] = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text())
CASE = "e2e case"


@pytest.fixture(scope="session")
def controlled_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(tmp_path_factory.mktemp("controlled-plane"))
    try:
        controllers = start_controllers(running)
        running.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield running
        controllers.stop()
    finally:
        running.stop()


@pytest.fixture(scope="session", params=PAIRS, ids=lambda pair: pair.replace(",", "+"))
def standing_cluster(
    request: pytest.FixtureRequest, controlled_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    topology = Topology(f"{RUN}e2e{PAIRS.index(request.param)}")
    folder = tmp_path_factory.mktemp("proxies")
    relays = {name: Relay(node.namespace, controlled_plane.port) for name, node in topology.nodes.items()}
    proxies: dict[str, NodeProxy] = {}
    for (name, node), kind in zip(topology.nodes.items(), request.param.split(","), strict=True):
        kubeconfig = controlled_plane.kubeconfig(relays[name].port)
        proxies[name] = NodeProxy(kind, node, kubeconfig, folder / f"{name}-{kind}.log")
    try:
        cluster = Cluster(controlled_plane, topology, proxies)
        for proxy in proxies.values():
            proxy.start()
        yield cluster
        for proxy in proxies.values():
            proxy.remove()
    finally:
        topology.close()
        for relay in relays.values():
            relay.stop()


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, standing_cluster: Cluster, record_property: Callable[[str, object], None]
) -> Iterator[Cluster]:
    """Empty at the beginning of each test."""
    pair = "+".join(proxy.kind for proxy in standing_cluster.proxies.values())
    for marker in request.node.iter_markers("e2e"):
        for number in marker.args:
            assert number in CASES
            record_property(CASE, (number, pair))
    yield standing_cluster
    standing_cluster.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found: dict[int, set[str]] = defaultdict(set)
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, value in getattr(report, "user_properties", ()):
                if name == CASE:
                    number, pair = value
                    found[number].add(f"{pair} {outcome}")
    if found:
        terminalreporter.section("end-to-end cases by number")
        for number, outcomes in sorted(found.items()):
            terminalreporter.write_line(f"{number:>4}  {', '.join(sorted(outcomes))}: {CASES[number]}")
