"""Which endpoints a node may use: traffic policies, pods that are terminating, zones and nodes that are preferred."""

import pytest

from kbpf.demo.node import OUTSIDE
from tests.cluster.e2e.cluster import Cluster, shows

pytestmark = [pytest.mark.root, pytest.mark.cluster]


@pytest.mark.e2e(44, 45, 46)
@pytest.mark.parametrize("host", [False, True], ids=["pods", "host-pods"])
def test_an_internal_policy_local_serves_only_the_node_of_the_endpoint(cluster: Cluster, host: bool) -> None:
    web = cluster.service("web", internalTrafficPolicy="Local")
    pod = cluster.pods.run("web", on="n1", host=host)
    for client in ("pod n1", "host n1"):
        cluster.reaches(client, web.cluster_ips(80), [pod])
    for client in ("pod n2", "host n2"):
        cluster.fails(client, web.cluster_ips(80))


@pytest.mark.e2e(47, 49)
def test_terminating_endpoints_serve_when_there_is_no_other(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort")
    pods = [cluster.pods.run("web", on="n1"), cluster.pods.run("web", on="n2")]
    cluster.pods.terminate(pods[0])
    cluster.reaches("pod n1", web.cluster_ips(80), pods[1:])
    cluster.pods.terminate(pods[1])
    for client in ("pod n1", "pod n2"):
        cluster.reaches(client, web.cluster_ips(80), pods)
    for node in ("n1", "n2"):
        cluster.reaches("outside", cluster.node_ports(node, web.node_port()), pods)
    cluster.pods.set_ready(pods[0], False)
    cluster.reaches("pod n2", web.cluster_ips(80), pods[1:])


@pytest.mark.e2e(48)
def test_an_internal_policy_local_falls_back_to_a_terminating_endpoint(cluster: Cluster) -> None:
    web = cluster.service("web", internalTrafficPolicy="Local")
    pod = cluster.pods.run("web", on="n1")
    cluster.pods.terminate(pod)
    cluster.reaches("pod n1", web.cluster_ips(80), [pod])
    cluster.fails("pod n2", web.cluster_ips(80))


@pytest.mark.e2e(50, 56)
def test_an_external_policy_local_keeps_the_client_s_address_and_drops_elsewhere(cluster: Cluster) -> None:
    web = cluster.service("web", type="NodePort", externalTrafficPolicy="Local")
    pod = cluster.pods.run("web", on="n1")
    port = web.node_port()
    answers = cluster.reaches("outside", cluster.node_ports("n1", port)[0], [pod])
    assert {answer.source for answer in answers} == {OUTSIDE.v4}
    cluster.fails("outside", cluster.node_ports("n2", port))
    cluster.reaches("pod n2", cluster.node_ports("n2", port), [pod])
    cluster.pods.terminate(pod)
    cluster.reaches("outside", cluster.node_ports("n1", port), [pod])
    cluster.reaches("pod n2", cluster.node_ports("n2", port), [pod])


@pytest.mark.e2e(51, 52, 53, 54, 55)
def test_load_balancers_are_told_which_nodes_have_endpoints(cluster: Cluster) -> None:
    vips = {"n1": "203.0.113.40", "n2": "203.0.113.140"}
    web = cluster.service("web", type="LoadBalancer", externalTrafficPolicy="Local")
    cluster.set_load_balancer(web, *({"ip": vip} for vip in vips.values()))
    pod = cluster.pods.run("web", on="n1")

    def health(node: str) -> set[str | None]:
        return {str(cluster.proxies[node].get(web.health_port, "/"))}

    shows(lambda: health("n1"), {"200"}, "health check node port of n1")
    shows(lambda: health("n2"), {"503"}, "health check node port of n2")
    answers = cluster.reaches("outside", f"{vips['n1']}:80", [pod])
    assert {answer.source for answer in answers} == {OUTSIDE.v4}
    cluster.fails("outside", f"{vips['n2']}:80")
    cluster.reaches("pod n2", f"{vips['n2']}:80", [pod])
    cluster.pods.terminate(pod)
    shows(lambda: health("n1"), {"503"}, "health check node port of n1")
    cluster.reaches("outside", f"{vips['n1']}:80", [pod])
    another = cluster.pods.run("web", on="n1")
    cluster.edit(web, lambda tree: tree["spec"].update(externalTrafficPolicy="Cluster"))
    shows(lambda: health("n1"), {"None"}, "health check node port of n1")
    answers = cluster.reaches("outside", [f"{vip}:80" for vip in vips.values()], [another])
    assert OUTSIDE.v4 not in {answer.source for answer in answers}
    web = cluster.edit(web, lambda tree: tree["spec"].update(externalTrafficPolicy="Local"))
    shows(lambda: health("n1"), {"200"}, "health check node port of n1")
    cluster.fails("outside", f"{vips['n2']}:80")


@pytest.mark.e2e(75, 76, 77, 78)
@pytest.mark.parametrize("distribution", ["PreferClose", "PreferSameZone"])
def test_clients_stay_in_their_zone_while_it_has_endpoints(cluster: Cluster, distribution: str) -> None:
    web = cluster.service("web", trafficDistribution=distribution)
    pods = [cluster.pods.run("web", on=node) for node in ("n1", "n1", "n2")]
    cluster.reaches("pod n1", web.cluster_ips(80), pods[:2])
    cluster.reaches("pod n2", web.cluster_ips(80), pods[2:])
    third = cluster.pods.run("web", on="n3")
    cluster.pods.remove(pods[2])
    cluster.reaches("pod n2", web.cluster_ips(80), [*pods[:2], third])
    cluster.reaches("pod n1", web.cluster_ips(80), pods[:2])


@pytest.mark.e2e(79, 80)
def test_clients_stay_on_their_node_while_it_has_endpoints(cluster: Cluster) -> None:
    web = cluster.service("web", trafficDistribution="PreferSameNode")
    pods = [cluster.pods.run("web", on=node) for node in ("n1", "n2")]
    for client, pod in (("pod n1", pods[0]), ("pod n2", pods[1])):
        cluster.reaches(client, web.cluster_ips(80), [pod])
    cluster.pods.remove(pods[0])
    cluster.reaches("pod n1", web.cluster_ips(80), pods[1:])
    again = cluster.pods.run("web", on="n1")
    cluster.reaches("pod n1", web.cluster_ips(80), [again])
