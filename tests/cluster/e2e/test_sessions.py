"""What lasts longer than a connection: session affinity, and UDP sockets whose endpoint is replaced."""

import time

import pytest

from tests.cluster.e2e.cluster import HTTP, LAG_S, UDP, Cluster, shows
from tests.cluster.e2e.pods import Pod
from tests.cluster.e2e.topology import PATIENCE_S, UDP_PORT, target

pytestmark = [pytest.mark.root, pytest.mark.cluster]

STICKY = {"sessionAffinity": "ClientIP"}
SESSION = "session"


def who(cluster: Cluster, origin: str, to: str, count: int = 15) -> set[str | None]:
    return {answer.backend or answer.error for answer in cluster.ask(origin, to, count)}


@pytest.mark.e2e(37, 38, 39, 40, 102)
def test_a_client_stays_with_one_endpoint_while_affinity_is_on(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort")
    pods = [cluster.pods.run("web", on=node) for node in ("n1", "n2", "n2")]
    ways = [*web.cluster_ips(80), *cluster.node_ports("n1", web.node_port())]
    for switch in ("ClientIP", "None", "ClientIP"):
        cluster.edit(web, lambda tree, switch=switch: tree["spec"].update(sessionAffinity=switch))  # type: ignore[misc]
        for to in ways:
            if switch == "None":
                cluster.reaches("pod n1", to, pods)
            else:
                shows(lambda to=to: {str(len(who(cluster, "pod n1", to)))}, {"1"}, f"endpoints behind {to}")  # type: ignore[misc]


@pytest.mark.e2e(41, 42)
def test_affinity_ends_after_its_time_out(cluster: Cluster) -> None:
    for node in ("n1", "n2", "n2"):
        cluster.pods.run("web", on=node)
    web = cluster.service("web", type="NodePort", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}}, **STICKY)
    ways = [web.cluster_ips(80)[0], cluster.node_ports("n1", web.node_port())[0]]
    seen: dict[str, set[str | None]] = {to: set() for to in ways}
    deadline = time.monotonic() + LAG_S
    while not all(len(found - {"ECONNREFUSED", "timeout"}) > 1 for found in seen.values()):
        assert time.monotonic() < deadline, seen
        for to, found in seen.items():
            found |= who(cluster, "pod n1", to, 1)
        time.sleep(2.1)


@pytest.mark.e2e(63, 64, 65, 66)
@pytest.mark.parametrize("kind", ["node-port", "cluster-ip", "local"])
def test_a_udp_client_with_one_socket_moves_on_when_its_endpoint_is_replaced(cluster: Cluster, kind: str) -> None:
    spec = {"internalTrafficPolicy": "Local"} if kind == "local" else {"type": "NodePort"}
    web = cluster.service("web", HTTP, UDP, **spec)
    first = cluster.pods.run("web", on="n1")
    clients, to = ["pod n1", "host n1"], web.cluster_ips(80, "UDP")[0]
    if kind == "node-port":
        clients, to = [*clients, "outside"], cluster.node_ports("n1", web.node_port("udp"), "UDP")[0]
    for client in clients:
        cluster.reaches(client, to, [first], at=UDP_PORT, mode="sendto")
        assert open_socket(cluster, client, to) == first.backend(UDP_PORT, ipv6=False)
    second = cluster.pods.run("web", on="n1")
    cluster.pods.remove(first)
    for client in clients:
        expect_socket_reaches(cluster, client, second)


@pytest.mark.e2e(67)
def test_a_udp_client_that_began_before_there_was_an_endpoint_is_answered_later(cluster: Cluster) -> None:
    web = cluster.service("web", HTTP, UDP)
    cluster.settle()
    assert open_socket(cluster, "pod n1", web.cluster_ips(80, "UDP")[0]) is None
    expect_socket_reaches(cluster, "pod n1", cluster.pods.run("web", on="n2"))


def open_socket(cluster: Cluster, origin: str, to: str) -> str | None:
    agent = cluster.topology.agent(origin)
    agent.close_sessions()
    return agent.open(SESSION, target(to, mode="sendto", timeout_s=PATIENCE_S)).backend


def expect_socket_reaches(cluster: Cluster, origin: str, pod: Pod) -> None:
    backend = pod.backend(UDP_PORT, ipv6=False)
    answer = cluster.topology.agent(origin).heal(SESSION, [backend], LAG_S)
    assert answer.backend == backend, f"{origin}: {answer}"
    cluster.topology.agent(origin).close_sessions()
