"""What operators do and what happens to them: restarts, an API server that is away, roll-outs, rules taken away."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbpf.demo.client import Stream
from kbpf.demo.exchange import Request
from tests.cluster.api import Refused
from tests.cluster.e2e.cluster import Cluster, Exposed, shows
from tests.cluster.e2e.node_proxy import KUBE_PROXY, NodeProxy
from tests.cluster.e2e.pods import Pod
from tests.conntrack_entries import forget_unanswered
from tests.kernel.world import destination

pytestmark = [pytest.mark.root, pytest.mark.cluster]

BATCH = 150


@contextmanager
def constant_traffic(cluster: Cluster, *ways: tuple[str, str]) -> Iterator[dict[str, Stream]]:
    """New connections all the time, from an origin to a destination each, by these.

    Their patience is that of a client, not of the machine: on a busy one the echo server alone may rest for seconds.
    """
    streams: dict[str, Stream] = {}
    for proxy in cluster.proxies.values():
        with proxy.node.namespace.entered():
            forget_unanswered()  # that the Service was waited for must not count
    try:
        for origin, to in ways:
            address, port, _ = destination(to)
            request = Request(address, port, pause_s=0.003, timeout_s=10)
            streams[f"{origin} to {to}"] = cluster.topology.client(origin).stream(request)
        yield streams
    finally:
        for stream in streams.values():
            stream.close()


def expect_no_failure(streams: dict[str, Stream]) -> None:
    for way, stream in streams.items():
        report = stream.wait_for(BATCH, timeout_s=60)
        assert not report.failed, f"{way}: {report.failed} of {report.attempts} failed, such as {report.failures}"


def standing(cluster: Cluster, name: str, *nodes: str) -> tuple[Exposed, list[Pod]]:
    exposed = cluster.service(name, type="NodePort")
    pods = [cluster.pods.run(name, on=node) for node in nodes]
    for client in ("pod n1", "pod n2"):
        cluster.reaches(client, exposed.cluster_ips(80)[0], pods)
    for node in ("n1", "n2"):
        cluster.reaches("outside", cluster.node_ports(node, exposed.node_port())[0], pods)
    return exposed, pods


def all_ways(cluster: Cluster, exposed: Exposed) -> list[tuple[str, str]]:
    inside = [(client, exposed.cluster_ips(80)[0]) for client in ("pod n1", "pod n2")]
    return inside + [("outside", cluster.node_ports(node, exposed.node_port())[0]) for node in ("n1", "n2")]


@pytest.mark.e2e(9)
def test_restarted_proxies_interrupt_nothing_and_program_what_came_meanwhile(cluster: Cluster) -> None:
    web, _ = standing(cluster, "web", "n1", "n2")
    with constant_traffic(cluster, *all_ways(cluster, web)) as streams:
        for proxy in cluster.proxies.values():
            proxy.stop()
        expect_no_failure(streams)
        new = cluster.service("new")
        pod = cluster.pods.run("new", on="n2")
        for proxy in cluster.proxies.values():
            proxy.start()
        for client in ("pod n1", "pod n2"):
            cluster.reaches(client, new.cluster_ips(80), [pod])
        expect_no_failure(streams)


@pytest.mark.e2e(10)
def test_an_api_server_that_crashes_under_churn_and_forgets_the_past_interrupts_nothing(cluster: Cluster) -> None:
    web, _ = standing(cluster, "web", "n1", "n2")
    churn = Churn(cluster)
    with constant_traffic(cluster, *all_ways(cluster, web)) as streams:
        try:
            for _ in range(2):
                cluster.control_plane.kill_api_server()
                try:
                    expect_no_failure(streams)
                    cluster.control_plane.compact()
                finally:
                    cluster.control_plane.start_api_server()
        finally:
            churn.stop()
        new = cluster.service("new")
        pod = cluster.pods.run("new", on="n1")
        for client in ("pod n1", "pod n2"):
            cluster.reaches(client, new.cluster_ips(80), [pod])
        expect_no_failure(streams)


@pytest.mark.e2e(58)
def test_a_roll_out_costs_no_connection(cluster: Cluster) -> None:
    web, pods = standing(cluster, "web", "n1", "n2")
    with constant_traffic(cluster, *all_ways(cluster, web)) as streams:
        for node in ("n1", "n2", "n1", "n2"):
            arriving = cluster.pods.run("web", on=node, ready=False)
            cluster.pods.set_ready(arriving)
            leaving = pods.pop(0)
            pods.append(arriving)
            for client in ("pod n1", "pod n2"):
                cluster.reaches(client, web.cluster_ips(80)[0], [leaving, *pods])
            cluster.pods.terminate(leaving)
            for client in ("pod n1", "pod n2"):
                cluster.reaches(client, web.cluster_ips(80)[0], pods)
            cluster.pods.remove(leaving)
        expect_no_failure(streams)


@pytest.mark.e2e(69)
def test_connections_that_the_client_does_not_close_are_forgotten_after_an_hour(cluster: Cluster) -> None:
    setting = Path("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait")
    for proxy in cluster.proxies.values():
        with proxy.node.namespace.entered():
            assert int(setting.read_text()) == 3600


@pytest.mark.e2e(72)
def test_node_ports_on_loopback_reach_endpoints_of_both_nodes(cluster: Cluster) -> None:
    web, pods = standing(cluster, "web", "n1", "n2")
    for node in ("n1", "n2"):
        cluster.reaches(f"host {node}", f"127.0.0.1:{web.node_port()}", pods)


@pytest.mark.e2e(106)
def test_rules_that_somebody_takes_away_come_back(cluster: Cluster) -> None:
    web, pods = standing(cluster, "web", "n1", "n2")
    for name, proxy in cluster.proxies.items():
        if proxy.kind == "ebpf":
            continue  # nothing there can be taken away with iptables
        take_rules_away(proxy)
        cluster.reaches(f"pod {name}", web.cluster_ips(80), pods)


def take_rules_away(proxy: NodeProxy) -> None:
    inside = ["nsenter", f"--net={proxy.node.namespace.path}"]
    for program in ("iptables", "ip6tables"):
        saved = subprocess.run([*inside, f"{program}-save"], capture_output=True, text=True, check=True).stdout
        kept = "".join(line for line in saved.splitlines(keepends=True) if "KUBE-" not in line)
        subprocess.run([*inside, f"{program}-restore"], input=kept, text=True, check=True)
        left = subprocess.run([*inside, f"{program}-save"], capture_output=True, text=True, check=True).stdout
        assert "KUBE-SVC" not in left


@pytest.mark.e2e(106)
def test_health_and_mode_are_told_on_the_node(cluster: Cluster) -> None:
    for proxy in cluster.proxies.values():
        assert proxy.get(10256, "/healthz") == 200
        mode = "iptables" if proxy.kind == KUBE_PROXY else proxy.kind
        shows(lambda proxy=proxy: {proxy.read(10249, "/proxyMode")[1]}, {mode}, "mode")  # type: ignore[misc]


class Churn:
    """Somebody who creates and deletes Services and bears every refusal."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name="churn")
        self.thread.start()

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            try:
                self.cluster.delete(self.cluster.service(f"churn{number}", app="web"))
            except (OSError, Refused):
                self.stopped.wait(0.1)

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()
