"""What `kbpf status` tells of what a kernel holds, with and without a daemon."""

import pytest

from kbpf.datapath.ebpf.shapes import NameKey
from kbpf.model.held import HeldFrontend
from kbpf.questions.daemon import Answer
from kbpf.questions.kernel import Kernel
from kbpf.questions.status import UNNAMED, Status, document, status
from tests.asked_node import AskedNode
from tests.builders import endpoint, endpoint_slice, port, service, slice_port, table_of

PODS = ("10.42.1.5", "10.42.1.6")
BACKENDS = ["10.42.1.5:8080", "10.42.1.6:8080"]
WEB = service(
    "web",
    port(80, "http", node_port=30080),
    type="LoadBalancer",
    external_ips=["203.0.113.5"],
    ingress=["203.0.113.6"],
)
WEB_SLICE = endpoint_slice("web", *PODS, ports=[slice_port(8080, "http")])
MEDIA = service("media", port(9999, protocol="SCTP"), cluster_ips=["10.96.0.11"])
MEDIA_SLICE = endpoint_slice("media", *PODS, ports=[slice_port(9999, protocol="SCTP")])
FRONTENDS = [
    "ClusterIP 10.96.0.10:80/tcp",
    "ExternalIP 203.0.113.5:80/tcp",
    "LoadBalancerIP 203.0.113.6:80/tcp",
    "NodePort 30080/tcp",
]


def asked(node: AskedNode, daemon: Answer | None = None) -> Status:
    return status(node.kernel, daemon, now=100.0)


def held(found: Status, service: str) -> list[HeldFrontend]:
    return [each for one in found.services if one.name == service for each in one.frontends]


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_both_datapaths_tell_the_same_of_a_service(datapath: str):
    found = asked(AskedNode(datapath).sync(table_of(WEB, WEB_SLICE)))
    assert found.kernel.datapath == datapath
    [web] = document(found)["services"]
    assert (web["name"], web["protocol"], web["backends"]) == ("shop/web:http", "TCP", BACKENDS)
    frontends = held(found, "shop/web:http")
    assert sorted(each.spelled for each in frontends) == FRONTENDS
    assert {each.carrier for each in frontends} == {datapath}
    assert found.deferred == {}


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_local_and_cluster_lists_are_told_apart(datapath: str):
    local = service("web", port(80, node_port=30080), type="NodePort", external_traffic_policy="Local")
    slices = endpoint_slice("web", "10.42.1.5", endpoint("10.42.2.5", "n2"))
    [web] = document(asked(AskedNode(datapath).sync(table_of(local, slices))))["services"]
    assert (web["backends"], web["localBackends"]) == (["10.42.1.5:8080", "10.42.2.5:8080"], ["10.42.1.5:8080"])


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_a_service_without_endpoints_is_there_without_backends(datapath: str):
    [web] = document(asked(AskedNode(datapath).sync(table_of(service("web")))))["services"]
    assert (web["name"], web["backends"]) == ("shop/web", [])
    assert [each["kind"] for each in web["frontends"]] == ["ClusterIP"]


def test_what_ebpf_leaves_to_iptables_is_counted_by_reason_and_named_by_the_rules():
    ranges = service("guarded", ingress=["203.0.113.7"], type="LoadBalancer", cluster_ips=["10.96.0.12"])
    guarded = service(
        "guarded",
        port(80),
        ingress=["203.0.113.7"],
        type="LoadBalancer",
        cluster_ips=["10.96.0.12"],
        load_balancer_source_ranges=["198.51.100.0/24"],
    )
    table = table_of(WEB, WEB_SLICE, MEDIA, MEDIA_SLICE, guarded, endpoint_slice("guarded", *PODS))
    found = asked(AskedNode().sync(table))
    assert found.deferred == {"sctp": 1, "source-ranges": 1}
    [media] = held(found, "shop/media")
    assert (media.carrier, media.reason, len(media.cluster)) == ("iptables", "sctp", 2)
    carriers = {each.spelled: each.carrier for each in held(found, "shop/guarded")}
    assert carriers == {
        "ClusterIP 10.96.0.12:80/tcp": "ebpf",
        "LoadBalancerIP 203.0.113.7:80/tcp": "ebpf and iptables",
    }
    assert asked(AskedNode().sync(table_of(ranges, endpoint_slice("guarded", *PODS)))).deferred == {}


def test_what_does_not_fit_the_maps_is_named():
    objects = [service("a", cluster_ips=["10.96.0.1"]), service("b", cluster_ips=["10.96.0.2"])]
    table = table_of(*objects, endpoint_slice("a", *PODS), endpoint_slice("b", *PODS))
    # Two of the three places are the self-test's.
    found = asked(AskedNode(sizes={"services": 3}).sync(table))
    assert found.spilled == ("shop/b",)
    assert found.deferred == {"spilled": 1}


def test_the_daemon_adds_why_and_when():
    node = AskedNode().sync(table_of(WEB, WEB_SLICE))
    found = asked(node, Answer("ebpf", "every probe passed", last_sync=88.0, sentence="synced"))
    told = document(found)
    assert (told["reason"], told["daemon"]["syncAgeSeconds"]) == ("every probe passed", 12.0)
    assert told["daemon"]["lastSync"] == "1970-01-01T00:01:28+00:00"
    alone = document(asked(node))
    assert (alone["reason"], alone["daemon"]["answers"], alone["daemon"]["lastSync"]) == ("", False, None)


def test_a_daemon_of_another_datapath_does_not_say_why_this_one_runs():
    found = asked(AskedNode().sync(table_of(WEB, WEB_SLICE)), Answer("iptables", "eBPF is unavailable"))
    assert found.reason == ""


def test_a_service_that_nothing_names_is_still_told():
    node = AskedNode().sync(table_of(WEB, WEB_SLICE))
    assert node.programs.maps is not None
    node.programs.maps.names.delete([NameKey(1)])
    assert {each.name for each in asked(node).services} == {UNNAMED}


def test_programs_that_are_not_in_force_carry_nothing():
    node = AskedNode().sync(table_of(WEB, WEB_SLICE))
    node.programs.attached = False
    found = asked(node)
    assert (found.kernel.datapath, found.services) == ("iptables" if found.kernel.has_rules else "none", ())


def test_an_empty_node_has_no_datapath():
    told = document(status(Kernel(), None, 0.0))
    assert (told["datapath"], told["services"], told["rules"], told["maps"]) == ("none", [], {}, {})
