"""Services and their endpoints as users make them: what a pod, a node and somebody outside reach, and what no more."""

import socket

import pytest

from kbpf.demo.node import OUTSIDE
from tests.cluster.api import Tree
from tests.cluster.e2e.cluster import HTTP, UDP, Cluster
from tests.cluster.e2e.topology import ELSEWHERE, OTHER_OUTSIDE, UDP_PORT

pytestmark = [pytest.mark.root, pytest.mark.cluster]

CLIENTS = ("pod n1", "pod n2", "host n1", "host n2")
ADMIN = {"name": "admin", "port": 81, "targetPort": 8081}
PROXY_NAME = "service.kubernetes.io/service-proxy-name"
HEADLESS = "service.kubernetes.io/headless"


def external_name(tree: Tree) -> None:
    spec = tree["spec"]
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "selector"):
        spec.pop(field, None)
    spec |= {"type": "ExternalName", "externalName": "elsewhere.example", "ports": [HTTP]}


@pytest.mark.e2e(2, 3, 4)
def test_each_port_follows_pods_that_come_and_go_and_ports_that_change(cluster: Cluster) -> None:
    web = cluster.service("web", HTTP, ADMIN)
    cluster.fails("pod n1", web.cluster_ips(80), error="ECONNREFUSED")
    first = cluster.pods.run("web", on="n1")
    cluster.reaches("pod n1", web.cluster_ips(80), [first])
    second = cluster.pods.run("web", on="n2")
    cluster.reaches("pod n2", web.cluster_ips(80), [first, second])
    cluster.reaches("pod n2", web.cluster_ips(81), [first, second], at=8081)
    cluster.pods.remove(first)
    cluster.reaches("pod n1", web.cluster_ips(80), [second])
    web = cluster.edit(web, lambda tree: tree["spec"].update(ports=[HTTP | {"port": 8000, "targetPort": "tcp8081"}]))
    cluster.reaches("pod n1", web.cluster_ips(8000), [second], at=8081)
    cluster.fails("pod n1", web.cluster_ips(81))
    cluster.pods.remove(second)
    cluster.fails("pod n2", web.cluster_ips(8000), error="ECONNREFUSED")


@pytest.mark.e2e(5, 6, 97, 98, 99)
def test_pods_are_seen_with_their_own_address_and_reach_themselves(cluster: Cluster) -> None:
    web = cluster.service("web")
    pod = cluster.pods.run("web", on="n2")
    for client, sources in (("pod n1", ("10.42.1.100", "fd42:1::100")), ("pod n2", ("10.42.2.100", "fd42:2::100"))):
        for destination, source in zip(web.cluster_ips(80), sources, strict=True):
            answers = cluster.reaches(client, destination, [pod])
            assert {answer.source for answer in answers} == {source}
    cluster.reaches(pod.slot.addresses[0], web.cluster_ips(80), [pod])
    cluster.reaches("host n1", web.cluster_ips(80), [pod])


@pytest.mark.e2e(7, 8)
def test_a_removed_service_answers_no_more_and_one_of_the_same_name_is_served_anew(cluster: Cluster) -> None:
    kept, gone = cluster.service("kept"), cluster.service("gone")
    pods = [cluster.pods.run("kept", on="n1"), cluster.pods.run("gone", on="n2")]
    cluster.reaches("pod n1", gone.cluster_ips(80), pods[1:])
    cluster.delete(gone)
    cluster.fails("pod n1", gone.cluster_ips(80))
    cluster.reaches("pod n1", kept.cluster_ips(80), pods[:1])
    again = cluster.service("gone", app="kept")
    cluster.reaches("pod n2", again.cluster_ips(80), pods[:1])


@pytest.mark.e2e(11, 100, 14)
def test_node_ports_are_open_on_every_node_until_the_service_has_none(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort")
    pods = [cluster.pods.run("web", on="n1"), cluster.pods.run("web", on="n2")]
    port = web.node_port()
    for client in (*CLIENTS, "outside"):
        for node in ("n1", "n2"):
            cluster.reaches(client, cluster.node_ports(node, port), pods)
    cluster.reaches("pod n1", web.cluster_ips(80), pods)

    def to_cluster_ip(tree: Tree) -> None:
        tree["spec"] |= {"type": "ClusterIP", "ports": [HTTP]}

    cluster.edit(web, to_cluster_ip)
    for client in ("pod n2", "outside"):
        cluster.fails(client, cluster.node_ports("n1", port))
    for node in cluster.topology.nodes.values():
        with node.namespace.entered():
            socket.create_server(("", port)).close()  # refused, if the proxy still held it


@pytest.mark.e2e(15, 25)
def test_tcp_and_udp_on_one_number_are_two_ports(cluster: Cluster) -> None:
    both = {"nodePort": 30917}
    web = cluster.service("web", HTTP | both, UDP | both, type="NodePort")
    pod = cluster.pods.run("web", on="n2")
    for destinations, at in (
        (web.cluster_ips(80) + cluster.node_ports("n1", 30917), 8080),
        (web.cluster_ips(80, "UDP") + cluster.node_ports("n1", 30917, "UDP"), UDP_PORT),
    ):
        cluster.reaches("pod n1", destinations, [pod], at=at)
    web = cluster.edit(web, lambda tree: tree["spec"].update(ports=[UDP | both]))
    cluster.fails("pod n1", web.cluster_ips(80))
    cluster.reaches("pod n1", web.cluster_ips(80, "UDP"), [pod], at=UDP_PORT)


@pytest.mark.e2e(16)
def test_an_external_ip_that_no_node_owns(cluster: Cluster) -> None:
    cluster.service("web", externalIPs=["203.0.113.5", "2001:db8:113::5"])
    pods = [cluster.pods.run("web", on="n1"), cluster.pods.run("web", on="n2")]
    for client in (*CLIENTS, "outside"):
        cluster.reaches(client, ["203.0.113.5:80", "[2001:db8:113::5]:80"], pods)


@pytest.mark.e2e(17, 18, 19, 20)
def test_the_type_of_a_service_changes_in_place(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort")
    pod = cluster.pods.run("web", on="n2")
    port, addresses = web.node_port(), web.cluster_ips(80)
    cluster.reaches("pod n1", addresses + cluster.node_ports("n1", port), [pod])
    web = cluster.edit(web, external_name)
    cluster.fails("pod n1", addresses)
    cluster.fails("pod n1", cluster.node_ports("n1", port))

    def to(kind: str) -> None:
        def change(tree: Tree) -> None:
            tree["spec"].pop("externalName", None)
            tree["spec"] |= {"type": kind, "ports": [HTTP], "selector": {"app": "web"}}

        changed = cluster.edit(web, change)
        cluster.reaches("pod n1", changed.cluster_ips(80), [pod])
        if kind == "NodePort":
            cluster.reaches("outside", cluster.node_ports("n1", changed.node_port())[:1], [pod])

    to("ClusterIP")
    cluster.edit(web, external_name)
    to("NodePort")


@pytest.mark.e2e(28, 29)
def test_a_service_without_endpoints_refuses_at_once(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort")
    for client in CLIENTS:
        cluster.fails(client, web.cluster_ips(80)[0], error="ECONNREFUSED")
        cluster.fails(client, cluster.node_ports("n1", web.node_port())[0], error="ECONNREFUSED")
    evicted = cluster.pods.run("web", on="n1")
    cluster.reaches("pod n1", web.cluster_ips(80), [evicted])
    cluster.pods.set_ready(evicted, False, phase="Failed")
    cluster.fails("pod n1", web.cluster_ips(80)[0], error="ECONNREFUSED")


@pytest.mark.e2e(30, 31)
def test_addresses_that_are_published_before_they_are_ready(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort", publishNotReadyAddresses=True)
    pod = cluster.pods.run("web", on="n1", ready=False)
    ways = [web.cluster_ips(80)[0], *(cluster.node_ports(node, web.node_port())[0] for node in ("n1", "n2"))]
    cluster.reaches("pod n2", ways, [pod])
    cluster.pods.terminate(pod)
    cluster.reaches("pod n2", ways, [pod])
    cluster.edit(web, lambda tree: tree["spec"].update(publishNotReadyAddresses=False))
    cluster.fails("pod n2", ways)


@pytest.mark.e2e(32)
def test_a_service_of_another_proxy_is_left_to_it(cluster: Cluster) -> None:
    web = cluster.service("web", labels={PROXY_NAME: "other"})
    pod = cluster.pods.run("web", on="n1")
    cluster.fails("pod n1", web.cluster_ips(80))
    cluster.edit(web, lambda tree: tree["metadata"].update(labels={}))
    cluster.reaches("pod n1", web.cluster_ips(80), [pod])
    cluster.edit(web, lambda tree: tree["metadata"].update(labels={PROXY_NAME: "other"}))
    cluster.fails("pod n1", web.cluster_ips(80))


@pytest.mark.e2e(33)
def test_a_slice_that_is_labelled_headless_does_not_count(cluster: Cluster) -> None:
    web = cluster.service("web", selector=None)
    pod = cluster.pods.run("other", on="n1")
    labels = {"kubernetes.io/service-name": "web"}
    cluster.slice("web", "web-1", [pod], labels=labels | {HEADLESS: ""})
    cluster.fails("pod n1", web.cluster_ips(80)[0], error="ECONNREFUSED")
    cluster.relabel_slice("web-1", labels)
    cluster.reaches("pod n1", web.cluster_ips(80)[0], [pod])
    cluster.relabel_slice("web-1", labels | {HEADLESS: ""})
    cluster.fails("pod n1", web.cluster_ips(80)[0], error="ECONNREFUSED")


@pytest.mark.e2e(34, 35, 36, 86)
def test_slices_written_by_hand_are_merged_port_by_port(cluster: Cluster) -> None:
    web = cluster.service("web", HTTP, ADMIN, selector=None)
    first, second = cluster.pods.run("other", on="n1"), cluster.pods.run("other", on="n2")
    cluster.slice("web", "web-http", [first], {"name": "http", "port": 8080})
    cluster.slice("web", "web-admin", [second], {"name": "admin", "port": 8081})
    http, admin = web.cluster_ips(80)[0], web.cluster_ips(81)[0]
    cluster.reaches("pod n1", http, [first])
    cluster.reaches("pod n2", admin, [second], at=8081)
    cluster.slice("web", "web-both", [first], {"name": "http", "port": 8080}, {"name": "admin", "port": 8081})
    cluster.reaches("pod n1", http, [first])
    cluster.reaches("pod n2", admin, [first, second], at=8081)


@pytest.mark.e2e(84)
def test_a_named_target_port_means_each_pod_s_own_number(cluster: Cluster) -> None:
    web = cluster.service("web", HTTP | {"targetPort": "tcp8081"})
    pods = [cluster.pods.run("web", on="n1"), cluster.pods.run("web", on="n2")]
    cluster.reaches("pod n1", web.cluster_ips(80), pods, at=8081)


@pytest.mark.e2e(89, 90, 91, 92, 93)
def test_each_family_policy_is_served_in_its_families(cluster: Cluster) -> None:
    pods = [cluster.pods.run("app", on="n1"), cluster.pods.run("app", on="n2")]
    for name, policy, families in (
        ("default", "SingleStack", None),
        ("four", "SingleStack", ["IPv4"]),
        ("six", "SingleStack", ["IPv6"]),
        ("four-six", "PreferDualStack", ["IPv4", "IPv6"]),
        ("six-four", "RequireDualStack", ["IPv6", "IPv4"]),
    ):
        exposed = cluster.service(name, app="app", ipFamilyPolicy=policy, ipFamilies=families)
        assert len(exposed.cluster_ips(80)) == (1 if policy == "SingleStack" else 2)
        cluster.reaches("pod n1", exposed.cluster_ips(80), pods)


@pytest.mark.e2e(101, 103)
def test_pods_on_the_network_of_their_node(cluster: Cluster) -> None:
    web = cluster.service("web", HTTP, UDP)
    pods = [cluster.pods.run("web", on="n1", host=True), cluster.pods.run("web", on="n2", host=True)]
    for client in ("pod n1", "host n1"):
        cluster.reaches(client, web.cluster_ips(80), pods)
        cluster.reaches(client, web.cluster_ips(80, "UDP"), pods, at=UDP_PORT)
    cluster.pods.remove(pods[0])
    cluster.reaches("pod n1", web.cluster_ips(80), pods[1:])
    cluster.reaches("pod n1", web.cluster_ips(80, "UDP"), pods[1:], at=UDP_PORT)


@pytest.mark.e2e(57)
def test_source_ranges_of_a_load_balancer(cluster: Cluster) -> None:
    vip = "203.0.113.20"
    ranges = [f"{OUTSIDE.v4}/32", "10.42.0.0/16"]
    web = cluster.service("web", type="LoadBalancer", loadBalancerSourceRanges=ranges)
    cluster.set_load_balancer(web, {"ip": vip})
    pod = cluster.pods.run("web", on="n2")
    cluster.reaches("outside", f"{vip}:80", [pod], source=OUTSIDE.v4)
    cluster.reaches("pod n1", f"{vip}:80", [pod])
    cluster.fails("outside", f"{vip}:80", source=OTHER_OUTSIDE)
    node_port = cluster.node_ports("n1", web.node_port())[0]
    cluster.reaches("outside", node_port, [pod], source=OTHER_OUTSIDE)
    cluster.edit(web, lambda tree: tree["spec"].update(loadBalancerSourceRanges=[f"{OTHER_OUTSIDE}/32"]))
    cluster.reaches("outside", f"{vip}:80", [pod], source=OTHER_OUTSIDE)
    cluster.fails("outside", f"{vip}:80", source=OUTSIDE.v4)


@pytest.mark.e2e(26, 59, 61)
def test_load_balancer_addresses_are_served_unless_the_balancer_wants_to_see_the_traffic(cluster: Cluster) -> None:
    web = cluster.service("web", HTTP, UDP, type="LoadBalancer")
    pod = cluster.pods.run("web", on="n2")
    cluster.set_load_balancer(web, {"ip": "203.0.113.30"}, {"ip": ELSEWHERE, "ipMode": "Proxy"})
    cluster.reaches("pod n1", "203.0.113.30:80", [pod])
    cluster.reaches("outside", "203.0.113.30:80/udp", [pod], at=UDP_PORT)
    (answer,) = cluster.ask("pod n1", f"{ELSEWHERE}:80")
    assert answer.backend == f"{ELSEWHERE}:80"

    def to_cluster_ip(tree: Tree) -> None:
        tree["spec"] |= {"type": "ClusterIP", "ports": [HTTP, UDP]}
        tree["spec"].pop("allocateLoadBalancerNodePorts", None)

    port = web.node_port()
    cluster.edit(web, to_cluster_ip)
    cluster.fails("pod n1", "203.0.113.30:80")
    cluster.fails("outside", cluster.node_ports("n1", port))
    cluster.reaches("pod n1", web.cluster_ips(80), [pod])
