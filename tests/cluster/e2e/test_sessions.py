"""What lasts longer than a connection: session affinity, and UDP sockets whose endpoint is replaced."""

import socket
import time
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6

from kbpf.demo.exchange import Answer
from kbpf.demo.namespaces import Namespace
from tests.cluster.e2e.cluster import HTTP, LAG_S, UDP, Cluster, shows
from tests.cluster.e2e.pods import Pod
from tests.cluster.e2e.topology import PATIENCE_S, UDP_PORT, is_ipv6, target

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


@pytest.mark.e2e(68)
@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_packet_outside_of_the_window_does_not_end_its_connection(cluster: Cluster, node: str) -> None:
    """Connection tracking does not translate it back; the client would reset what it takes for a stranger's."""
    web = cluster.service("web")
    pod = cluster.pods.run("web", on="n3")  # no proxy there that could drop it on its way
    agent = cluster.topology.agent(f"pod {node}")
    for to in web.cluster_ips(80):
        cluster.reaches(f"pod {node}", to, [pod])
        opened = agent.open(SESSION, target(to, timeout_s=LAG_S))
        assert opened.backend == pod.backend(8080, ipv6=is_ipv6(to)), opened
        send_outside_of_the_window(pod, opened)
        for _ in range(3):
            assert agent.ping(SESSION).backend == opened.backend
        agent.close_sessions()


def send_outside_of_the_window(pod: Pod, opened: Answer) -> None:
    """To the client of this connection, from its server; of four numbers spread like this, three fit no window."""
    assert opened.source is not None
    is_v6 = ":" in opened.source
    header = IPv6 if is_v6 else IP
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    between = header(src=pod.slot.addresses[is_v6], dst=opened.source)
    namespace = Namespace(Path(pod.slot.place.namespace).name)
    with namespace.entered(), socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for quarter in range(4):
            segment = TCP(sport=8080, dport=opened.source_port, flags="A", seq=quarter << 30, ack=1)
            raw.sendto(bytes(between / segment), (opened.source, 0))


def open_socket(cluster: Cluster, origin: str, to: str) -> str | None:
    agent = cluster.topology.agent(origin)
    agent.close_sessions()
    return agent.open(SESSION, target(to, mode="sendto", timeout_s=PATIENCE_S)).backend


def expect_socket_reaches(cluster: Cluster, origin: str, pod: Pod) -> None:
    backend = pod.backend(UDP_PORT, ipv6=False)
    answer = cluster.topology.agent(origin).heal(SESSION, [backend], LAG_S)
    assert answer.backend == backend, f"{origin}: {answer}"
    cluster.topology.agent(origin).close_sessions()
