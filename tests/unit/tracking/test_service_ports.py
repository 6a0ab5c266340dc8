"""From Service objects to service ports: what is proxied, and the rule of every field."""

from typing import Any

import pytest

from kbpf.model.address import Family
from kbpf.model.names import Protocol
from kbpf.model.objects import (
    DATAPATH_ANNOTATION,
    HEADLESS_LABEL,
    SERVICE_PROXY_NAME_LABEL,
    ClientIPConfig,
    LoadBalancerIngress,
    ObjectMeta,
    Service,
    ServiceSpec,
    SessionAffinityConfig,
)
from kbpf.model.service_port import ServicePort
from kbpf.tracking.service_ports import service_ports
from tests.builders import port, service, service_name

V4, V6 = "10.96.0.10", "fd96::10"
NAME = service_name("web")


def read(*ports: Any, **fields: Any) -> tuple[ServicePort, ...]:
    found, problems = service_ports(NAME, service("web", *ports, **fields))
    assert problems == ()
    return found


def only(*ports: Any, **fields: Any) -> ServicePort:
    (found,) = read(*ports, **fields)
    return found


def problems_of(*ports: Any, **fields: Any) -> list[str]:
    return [str(problem) for problem in service_ports(NAME, service("web", *ports, **fields))[1]]


@pytest.mark.parametrize(("value", "wants_rules"), [("iptables", True), ("auto", False)])
def test_a_service_may_ask_for_rules(value: str, wants_rules: bool):
    assert only(port(80), annotations={DATAPATH_ANNOTATION: value}).wants_rules is wants_rules
    assert only(port(80)).wants_rules is False


@pytest.mark.parametrize("value", ["", "off", "IPTABLES"])
def test_other_words_in_the_annotation_are_told_and_mean_nothing(value: str):
    [problem] = problems_of(port(80), annotations={DATAPATH_ANNOTATION: value})
    assert "kbpf.io/datapath" in problem
    found, _ = service_ports(NAME, service("web", annotations={DATAPATH_ANNOTATION: value}))
    assert [each.wants_rules for each in found] == [False]


# -- is it proxied at all? -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster_ip", [None, "", "None"])
def test_a_service_without_a_cluster_ip_is_not_proxied(cluster_ip: str | None):
    assert read(cluster_ips=(), cluster_ip=cluster_ip) == ()


def test_a_headless_service_may_have_no_ports_and_no_family():
    assert read(cluster_ips=(), cluster_ip="None", ports=[], ip_families=None) == ()


def test_an_external_name_is_not_proxied_even_with_a_cluster_ip():
    assert read(type="ExternalName") == ()


@pytest.mark.parametrize("value", ["other", ""])
def test_the_label_of_another_proxy_counts_whatever_its_value(value: str):
    assert read(labels={SERVICE_PROXY_NAME_LABEL: value}) == ()


def test_a_headless_label_on_a_service_with_a_cluster_ip_is_no_reason_not_to_proxy_it():
    """Only the label on slices counts since kube-proxy split its selectors; slices of a headless Service carry it."""
    assert len(read(labels={HEADLESS_LABEL: ""})) == 1


def test_a_service_without_spec_or_ports_has_no_service_ports():
    assert service_ports(NAME, Service(ObjectMeta("web", "shop"))) == ((), ())
    for ports in ([], None):
        assert read(ports=ports) == ()


def test_every_port_is_a_service_port():
    assert [(each.name.port, each.name.protocol, each.port, each.node_port) for each in read(
        port(53, "dns", "UDP", 30053), port(53, "dns-tcp"), port(38412, "sctp", "SCTP")
    )] == [
        ("dns", Protocol.UDP, 53, 30053), ("dns-tcp", Protocol.TCP, 53, 0), ("sctp", Protocol.SCTP, 38412, 0),
    ]  # fmt: skip


def test_one_name_with_two_protocols_is_two_service_ports():
    assert {each.name.protocol for each in read(port(53, "dns"), port(53, "dns", "UDP"))} == {
        Protocol.TCP,
        Protocol.UDP,
    }


def test_a_missing_protocol_is_tcp():
    assert only(port(80, protocol=None)).name.protocol is Protocol.TCP


# -- families --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster_ip", "cluster_ips", "families", "expected"),
    [
        (V4, [V4], ["IPv4"], {Family.IPV4: V4}),
        (V4, [V4, V6], ["IPv4", "IPv6"], {Family.IPV4: V4, Family.IPV6: V6}),
        (V6, [V6, V4], ["IPv6", "IPv4"], {Family.IPV6: V6, Family.IPV4: V4}),
        (V4, [V4, V6], ["IPv4"], {Family.IPV4: V4}),
        (V4, [V4], ["IPv4", "IPv6"], {Family.IPV4: V4}),
        (V4, [V4, V6], None, {Family.IPV4: V4}),
        (V6, [], [], {Family.IPV6: V6}),
        (V4, None, ["IPv4"], {Family.IPV4: V4}),
        ("010.096.0.10", ["010.096.0.10"], ["IPv4"], {Family.IPV4: V4}),
        ("FD96:0::0010", ["FD96:0::0010"], ["IPv6"], {Family.IPV6: V6}),
        ("::ffff:10.96.0.10", ["::ffff:10.96.0.10"], ["IPv4"], {Family.IPV4: V4}),
    ],
)
def test_cluster_ips_go_by_ip_families_or_by_themselves(
    cluster_ip: str, cluster_ips: list[str] | None, families: list[str] | None, expected: dict[Family, str]
):
    found, problems = service_ports(NAME, addressed(cluster_ip, cluster_ips, families))
    assert {each.family: each.cluster_ip for each in found} == expected
    assert problems == ()


def addressed(cluster_ip: str, cluster_ips: list[str] | None, families: list[str] | None) -> Service:
    spec = ServiceSpec(cluster_ip=cluster_ip, cluster_ips=cluster_ips, ip_families=families, ports=[port(80)])
    return Service(ObjectMeta("web", "shop"), spec)


@pytest.mark.parametrize(
    ("cluster_ips", "families", "expected", "words"),
    [
        ([V6], ["IPv4"], [], f"spec.clusterIPs[0]: '{V6}': is not an 'IPv4' address, no ClusterIP of this family"),
        ([V4, "x"], ["IPv4", "IPv6"], [V4], "spec.clusterIPs[1]: 'x': not an IP address, no ClusterIP of this family"),
        ([V4, ""], ["IPv4", "IPv6"], [V4], "spec.clusterIPs[1]: '': not an IP address, no ClusterIP of this family"),
        (["fe80::1%eth0", V4], ["IPv6", "IPv4"], [V4],
         "spec.clusterIPs[0]: 'fe80::1%eth0': zone ids are not allowed, no ClusterIP of this family"),
        ([V4, V6], ["IPv4", "IPv5"], [V4],
         f"spec.clusterIPs[1]: '{V6}': is not an 'IPv5' address, no ClusterIP of this family"),
    ],
)  # fmt: skip
def test_a_wrong_cluster_ip_costs_its_family_only(
    cluster_ips: list[str], families: list[str], expected: list[str], words: str
):
    found, problems = service_ports(NAME, addressed(V4, cluster_ips, families))
    assert [each.cluster_ip for each in found] == expected
    assert [str(problem) for problem in problems] == [f"Service shop/web: {words}"]


def test_a_wrong_cluster_ip_without_families_is_named():
    assert problems_of(cluster_ips=(), cluster_ip="10.96.0.999", ip_families=None) == [
        "Service shop/web: spec.clusterIP: '10.96.0.999': not an IP address, no ClusterIP of this family"
    ]


# -- fields ----------------------------------------------------------------------------------------------------------


def test_external_ips_keep_their_order_and_are_split_by_family():
    v4, v6 = read(cluster_ips=(V4, V6), external_ips=["203.0.113.9", "2001:db8::9", "203.0.113.08", "203.0.113.9"])
    assert (v4.external_ips, v6.external_ips) == (("203.0.113.9", "203.0.113.8"), ("2001:db8::9",))


def test_a_wrong_external_ip_is_skipped_and_named_once_for_both_families():
    found, problems = service_ports(
        NAME, service(cluster_ips=(V4, V6), external_ips=["203.0.113.9 -j ACCEPT", "", "::1%1"])
    )
    assert [each.external_ips for each in found] == [(), ()]
    assert [str(problem) for problem in problems] == [
        "Service shop/web: spec.externalIPs[0]: '203.0.113.9 -j ACCEPT': not an IP address, address skipped",
        "Service shop/web: spec.externalIPs[1]: '': not an IP address, address skipped",
        "Service shop/web: spec.externalIPs[2]: '::1%1': zone ids are not allowed, address skipped",
    ]


@pytest.mark.parametrize("address", ["0.0.0.0", "000.0.0.0", "::", "::ffff:0.0.0.0"])
def test_an_unspecified_address_is_no_frontend(address: str):
    found, problems = service_ports(NAME, service(external_ips=[address], ingress=[address]))
    assert (found[0].external_ips, found[0].load_balancer_ips) == ((), ())
    assert [problem.field for problem in problems] == ["spec.externalIPs[0]", "status.loadBalancer.ingress[0].ip"]
    assert service_ports(NAME, addressed(address, None, None))[0] == ()


@pytest.mark.parametrize(
    ("ingress", "expected"),
    [
        (LoadBalancerIngress("203.0.113.19"), ("203.0.113.19",)),
        (LoadBalancerIngress("203.0.113.19", "VIP"), ("203.0.113.19",)),
        (LoadBalancerIngress("203.0.113.19", "Proxy"), ()),
        (LoadBalancerIngress("203.0.113.19", "Other"), ()),
        (LoadBalancerIngress(""), ()),
        (LoadBalancerIngress(None), ()),
        (LoadBalancerIngress("64:ff9b::cb00:710c"), ()),
    ],
)
def test_a_load_balancer_ip_counts_when_its_mode_is_vip_or_unset(
    ingress: LoadBalancerIngress, expected: tuple[str, ...]
):
    assert only(type="LoadBalancer", ingress=[ingress]).load_balancer_ips == expected


def test_addresses_of_the_other_family_harm_nothing():
    found = only(
        type="LoadBalancer",
        external_ips=["2001:db8:5::5"],
        load_balancer_source_ranges=["198.51.100.0/24", "2001:db8::/32"],
        ingress=["203.0.113.12", "64:ff9b::cb00:710c"],
    )
    assert found.external_ips == ()
    assert found.load_balancer_ips == ("203.0.113.12",)
    assert found.source_ranges == ("198.51.100.0/24",)


@pytest.mark.parametrize(
    ("ranges", "v4", "v6"),
    [
        (None, (), ()),
        ([], (), ()),
        (["192.0.2.0/24"], ("192.0.2.0/24",), ()),
        ([" 192.0.2.0/24 ", "\t2001:db8::/32"], ("192.0.2.0/24",), ("2001:db8::/32",)),
        (["192.0.2.7/24", "192.0.2.0/24"], ("192.0.2.0/24",), ()),
        (["192.0.2.0/24", "0.0.0.0/0"], (), ()),
        (["192.0.2.0/24", "198.51.100.7/0"], (), ()),
        (["192.0.2.0/24", "::/0", "2001:db8::/32"], ("192.0.2.0/24",), ()),
        (["10.0.0.0/8", "192.0.2.0/24", "10.0.0.0/8"], ("10.0.0.0/8", "192.0.2.0/24"), ()),
    ],
)
def test_source_ranges_are_split_by_family_and_cancelled_by_everything(
    ranges: list[str] | None, v4: tuple[str, ...], v6: tuple[str, ...]
):
    first, second = read(cluster_ips=(V4, V6), load_balancer_source_ranges=ranges)
    assert (first.source_ranges, second.source_ranges) == (v4, v6)


def test_a_wrong_source_range_is_skipped_and_named():
    found, problems = service_ports(
        NAME, service(load_balancer_source_ranges=["192.0.2.0/24 -j ACCEPT", "192.0.2.0", "198.51.100.0/24"])
    )
    assert found[0].source_ranges == ("198.51.100.0/24",)
    assert [problem.field for problem in problems] == [f"spec.loadBalancerSourceRanges[{index}]" for index in (0, 1)]


@pytest.mark.parametrize(
    ("affinity", "timeout", "expected"),
    [
        (None, None, 0),
        ("None", 60, 0),
        ("ClientIP", None, 10800),
        ("ClientIP", 60, 60),
        ("ClientIP", 1, 1),
        ("ClientIP", 86400, 86400),
    ],
)
def test_affinity_has_the_timeout_of_the_service_or_three_hours(
    affinity: str | None, timeout: int | None, expected: int
):
    config = SessionAffinityConfig(ClientIPConfig(timeout))
    assert only(session_affinity=affinity, session_affinity_config=config).affinity_timeout_s == expected


@pytest.mark.parametrize("config", [None, SessionAffinityConfig(), SessionAffinityConfig(ClientIPConfig())])
def test_affinity_without_a_timeout_lasts_three_hours(config: SessionAffinityConfig | None):
    assert only(session_affinity="ClientIP", session_affinity_config=config).affinity_timeout_s == 10800


@pytest.mark.parametrize("timeout", [0, -1, 86401, 10**30])
def test_an_impossible_timeout_is_named_and_the_default_used(timeout: int):
    config = SessionAffinityConfig(ClientIPConfig(timeout))
    found, problems = service_ports(NAME, service(session_affinity="ClientIP", session_affinity_config=config))
    assert found[0].affinity_timeout_s == 10800
    assert [problem.field for problem in problems] == ["spec.sessionAffinityConfig.clientIP.timeoutSeconds"]


@pytest.mark.parametrize(
    ("type_", "external_ips", "policy", "expected"),
    [
        ("LoadBalancer", [], "Local", True),
        ("NodePort", [], "Local", True),
        ("ClusterIP", [], "Local", False),
        ("ClusterIP", ["203.0.113.9"], "Local", True),
        ("ClusterIP", ["2001:db8::9"], "Local", False),
        (None, ["203.0.113.9"], "Local", True),
        ("LoadBalancer", [], "Cluster", False),
        ("NodePort", [], None, False),
        ("NodePort", [], "local", False),
    ],
)
def test_external_policy_local_needs_something_external(
    type_: str | None, external_ips: list[str], policy: str | None, expected: bool
):
    found, _ = service_ports(NAME, service(type=type_, external_ips=external_ips, external_traffic_policy=policy))
    assert found[0].external_policy_local is expected


@pytest.mark.parametrize(("policy", "expected"), [("Local", True), ("Cluster", False), (None, False), ("", False)])
def test_internal_policy_is_cluster_unless_it_says_local(policy: str | None, expected: bool):
    assert only(internal_traffic_policy=policy).internal_policy_local is expected


@pytest.mark.parametrize(
    ("type_", "policy", "expected"),
    [("LoadBalancer", "Local", 32100), ("LoadBalancer", "Cluster", 0), ("NodePort", "Local", 0)],
)
def test_a_health_check_port_belongs_to_load_balancers_with_local_policy(type_: str, policy: str, expected: int):
    found = only(type=type_, external_traffic_policy=policy, health_check_node_port=32100)
    assert found.health_check_node_port == expected


@pytest.mark.parametrize("number", [None, 0])
def test_a_missing_health_check_port_is_named(number: int | None):
    assert problems_of(type="LoadBalancer", external_traffic_policy="Local", health_check_node_port=number) == [
        f"Service shop/web: spec.healthCheckNodePort: {number}: missing, no health check port"
    ]


def test_a_node_port_needs_no_type():
    assert only(port(80, node_port=30080), type="ClusterIP").node_port == 30080


# -- wrong ports -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, -1, 65536, 10**30, None])
def test_an_impossible_port_is_skipped_and_the_others_stay(number: int | None):
    found, problems = service_ports(NAME, service("web", port(number, "bad"), port(80, "good")))
    assert [each.name.port for each in found] == ["good"]
    assert [str(problem) for problem in problems] == [
        f"Service shop/web: spec.ports[0].port: {number}: is not a port number (1-65535), port skipped"
    ]


@pytest.mark.parametrize("number", [1, 65535])
def test_the_first_and_last_port_numbers_are_ports(number: int):
    assert only(port(number)).port == number


@pytest.mark.parametrize("number", [-1, 65536])
def test_an_impossible_node_port_leaves_the_cluster_ip(number: int):
    found, problems = service_ports(NAME, service("web", port(443, "s"), port(80, "http", node_port=number)))
    assert [(each.port, each.node_port) for each in found] == [(443, 0), (80, 0)]
    assert [str(problem) for problem in problems] == [
        f"Service shop/web: spec.ports[1].nodePort: {number}: is not a port number (1-65535), ignored"
    ]


@pytest.mark.parametrize("protocol", ["tcp", "ICMP", "TCP\n", "6"])
def test_an_unknown_protocol_is_skipped_and_named(protocol: str):
    assert [line.split(": ")[1] for line in problems_of(port(80, protocol=protocol))] == ["spec.ports[0].protocol"]


@pytest.mark.parametrize(
    "name",
    ['a"\n-A KUBE-X -j ACCEPT\nCOMMIT', "a b", "a'b", "a;b", "$(id)", "-a", "a-", "ä", "a\n", "x" * 64, "a/b", "a:b"],
)
def test_a_port_name_that_could_leave_its_quotes_is_skipped_and_named(name: str):
    found, problems = service_ports(NAME, service("web", port(80, name), port(443, "good")))
    assert [each.name.port for each in found] == ["good"]
    (problem,) = problems
    assert problem.field == "spec.ports[0].name"
    assert str(problem).isprintable()


def test_the_second_port_of_one_name_and_protocol_is_skipped():
    found, problems = service_ports(NAME, service("web", port(80, "http"), port(81, "http")))
    assert [each.port for each in found] == [80]
    assert [problem.field for problem in problems] == ["spec.ports[1].name"]
