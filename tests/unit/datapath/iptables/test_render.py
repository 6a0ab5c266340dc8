"""The rendered rules are kube-proxy's, byte for byte: one golden file for each kind of service port.

The order of the lines inside a chain is the rules' meaning; the order of chains means nothing, so a golden file holds
the chains as they are rendered here.
"""

import re
from collections.abc import Callable

import msgspec
import pytest

from kbpf.datapath.iptables.book import RuleBook
from kbpf.datapath.iptables.plan import complete_input
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector
from kbpf.model.objects import (
    ClientIPConfig,
    EndpointSlice,
    LoadBalancerIngress,
    Service,
    SessionAffinityConfig,
    SliceEndpoint,
)
from kbpf.model.table import FrontendKind, ServiceTable
from tests.builders import draining, endpoint, endpoint_slice, port, service, service_name, slice_port, table_of

Golden = Callable[[str, str], None]

SETTINGS = IptablesSettings(
    detectors={
        Family.IPV4: LocalDetector(cidr="10.244.0.0/16"),
        Family.IPV6: LocalDetector(cidr="fd00:10:244::/56"),
    },
    node_ips={Family.IPV4: Address("192.168.50.11")},
)


def render(
    *objects: Service | EndpointSlice, family: Family = Family.IPV4, settings: IptablesSettings = SETTINGS
) -> str:
    book = RuleBook(family, settings)
    book.update_all(table_of(*objects))
    return complete_input(book).text


def rules_of(text: str, chain: str) -> list[str]:
    head = f"-A {chain} "
    return [line.removeprefix(head) for line in text.splitlines() if line.startswith(head)]


WEB = service("web", port(80, "http"), cluster_ips=["10.96.12.34"])
WEB_SLICE = endpoint_slice(
    "web", "10.244.1.5", endpoint("10.244.2.7", "n2"), endpoint("10.244.3.9", "n3"), ports=[slice_port(8080, "http")]
)


def test_a_cluster_ip_with_three_endpoints(golden: Golden):
    golden("iptables/cluster-ip.rules", render(WEB, WEB_SLICE))


def test_session_affinity_on_an_unnamed_port(golden: Golden):
    cart = service(
        "cart",
        port(6379),
        cluster_ips=["10.96.40.1"],
        session_affinity="ClientIP",
        session_affinity_config=SessionAffinityConfig(ClientIPConfig(10800)),
    )
    endpoints = endpoint_slice("cart", "10.244.1.20", endpoint("10.244.2.21", "n2"), ports=[slice_port(6379)])
    golden("iptables/affinity.rules", render(cart, endpoints))


FRONT = service(
    "front",
    port(443, "https", node_port=31443),
    type="LoadBalancer",
    cluster_ips=["10.96.50.5"],
    external_ips=["203.0.113.8"],
    ingress=["198.51.100.20", LoadBalancerIngress("198.51.100.21", "Proxy")],
    load_balancer_source_ranges=["192.168.50.0/24", "172.20.0.0/16"],
)
FRONT_SLICE = endpoint_slice("front", "10.244.1.30", ports=[slice_port(8443, "https")])


def test_a_load_balancer_with_source_ranges(golden: Golden):
    golden("iptables/load-balancer-source-ranges.rules", render(FRONT, FRONT_SLICE))


STREAM = service(
    "stream",
    port(5004, "rtp", "UDP", node_port=32504),
    namespace="media",
    type="LoadBalancer",
    cluster_ips=["10.96.60.6"],
    ingress=["198.51.100.30"],
    external_traffic_policy="Local",
    health_check_node_port=31999,
)
REMOTE = endpoint("10.244.2.41", "n2")


def stream_slice(*endpoints: str | SliceEndpoint) -> EndpointSlice:
    return endpoint_slice("stream", *endpoints, namespace="media", ports=[slice_port(5004, "rtp", "UDP")])


def test_external_policy_local_with_a_local_endpoint(golden: Golden):
    golden("iptables/local-policy.rules", render(STREAM, stream_slice("10.244.1.40", REMOTE)))


def test_external_policy_local_without_a_local_endpoint(golden: Golden):
    golden("iptables/local-policy-without-local-endpoint.rules", render(STREAM, stream_slice(REMOTE)))


def test_no_endpoints_at_all(golden: Golden):
    idle = service(
        "idle",
        port(8080, "api", node_port=30080),
        namespace="ops",
        type="NodePort",
        cluster_ips=["10.96.70.7"],
        external_ips=["203.0.113.9"],
    )
    golden("iptables/no-endpoints.rules", render(idle))


def test_ipv6_with_internal_policy_local_and_a_terminating_local_endpoint(golden: Golden):
    web = service(
        "web",
        port(80, "http", node_port=30081),
        type="NodePort",
        cluster_ips=["10.96.12.34", "fd00:10:96::c22"],
        internal_traffic_policy="Local",
    )
    endpoints = endpoint_slice(
        "web",
        draining("fd00:10:244:1::5"),
        endpoint("fd00:10:244:2::7", "n2"),
        family="IPv6",
        ports=[slice_port(8080, "http")],
    )
    golden("iptables/ipv6-internal-policy-local.rules", render(web, endpoints, family=Family.IPV6))


# -- settings ----------------------------------------------------------------------------------------------------------

WEB_CHAIN = "KUBE-SVC-67NZLRHBNDSAWJRO"
STREAM_EXTERNAL = "KUBE-EXT-Y6US4ZIWJ2UWPBKQ"
MASQUERADE = '-m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d 10.96.12.34 --dport 80'


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (IptablesSettings(masquerade_all=True), f"{MASQUERADE} -j KUBE-MARK-MASQ"),
        (
            IptablesSettings(detectors={Family.IPV4: LocalDetector(interface="cni0")}),
            f"{MASQUERADE} ! -i cni0 -j KUBE-MARK-MASQ",
        ),
        (
            IptablesSettings(detectors={Family.IPV4: LocalDetector(interface="cali+")}),
            f"{MASQUERADE} ! -i cali+ -j KUBE-MARK-MASQ",
        ),
    ],
    ids=["all", "bridge", "prefix"],
)
def test_what_of_the_cluster_ip_traffic_is_masqueraded(settings: IptablesSettings, rule: str):
    assert rules_of(render(WEB, WEB_SLICE, settings=settings), WEB_CHAIN)[0] == rule


@pytest.mark.parametrize(
    "detectors",
    [{}, {Family.IPV6: LocalDetector(cidr="fd00::/8")}, {Family.IPV4: LocalDetector(cidr="0.0.0.0/0")}],
    ids=["none", "of the other family", "everything is local"],
)
def test_nothing_is_masqueraded_when_no_source_counts_as_outside(detectors: dict[Family, LocalDetector]):
    rules = rules_of(render(WEB, WEB_SLICE, settings=IptablesSettings(detectors=detectors)), WEB_CHAIN)
    assert len(rules) == 3
    assert "KUBE-MARK-MASQ" not in "".join(rules)


def test_without_a_detector_pods_have_no_short_cut_past_a_local_policy():
    rules = rules_of(render(STREAM, stream_slice("10.244.1.40"), settings=IptablesSettings()), STREAM_EXTERNAL)
    assert len(rules) == 3
    assert all("pod traffic" not in rule for rule in rules)


def test_when_every_source_is_local_no_match_is_needed():
    settings = IptablesSettings(detectors={Family.IPV4: LocalDetector(cidr="0.0.0.0/0")})
    first = rules_of(render(STREAM, stream_slice("10.244.1.40"), settings=settings), STREAM_EXTERNAL)[0]
    text = "pod traffic for media/stream:rtp external destinations"
    assert first == f'-m comment --comment "{text}" -j KUBE-SVC-Y6US4ZIWJ2UWPBKQ'


def test_the_masquerade_bit_is_written_as_eight_hex_digits():
    text = render(settings=IptablesSettings(masquerade_bit=3))
    assert rules_of(text, "KUBE-MARK-MASQ") == ["-j MARK --or-mark 0x00000008"]
    assert "-m mark ! --mark 0x00000008/0x00000008 -j RETURN" in text


def test_random_fully_is_left_out_when_iptables_cannot_do_it():
    assert "--random-fully" not in render(settings=IptablesSettings(random_fully=False))


def test_liberal_connection_tracking_leaves_invalid_packets_alone():
    rules = rules_of(render(settings=IptablesSettings(conntrack_liberal=True)), "KUBE-FORWARD")
    assert len(rules) == 2
    assert "INVALID" not in "".join(rules)


def test_a_node_outside_the_source_ranges_gets_no_rule_for_itself():
    settings = IptablesSettings(node_ips={Family.IPV4: Address("10.0.0.1")})
    rules = rules_of(render(FRONT, FRONT_SLICE, settings=settings), "KUBE-FW-VPWLIZ4UCZR3AVHA")
    assert not any("-s 198.51.100.20" in rule for rule in rules)


def test_large_clusters_lose_the_comments_of_balancing_rules_and_no_others():
    text = render(WEB, WEB_SLICE, settings=IptablesSettings(large_cluster_endpoints=2))
    assert rules_of(text, WEB_CHAIN)[-1] == "-j KUBE-SEP-RWEQV2B7Q5U44J6N"
    assert rules_of(text, "KUBE-SEP-RWEQV2B7Q5U44J6N")[0] == "-s 10.244.3.9 -j KUBE-MARK-MASQ"
    assert '"shop/web:http cluster IP"' in text
    assert "->" in render(WEB, WEB_SLICE, settings=IptablesSettings(large_cluster_endpoints=3))


# -- node ports --------------------------------------------------------------------------------------------------------


def tail(family: Family, settings: IptablesSettings) -> list[str]:
    head = '-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" '
    return [rule.removeprefix(head) for rule in rules_of(render(family=family, settings=settings), "KUBE-SERVICES")]


def test_node_ports_on_every_local_address():
    local, ports = "-m addrtype --dst-type LOCAL", "-j KUBE-NODEPORTS"
    off = IptablesSettings(localhost_node_ports=False)
    assert tail(Family.IPV4, IptablesSettings()) == [f"{local} {ports}"]
    assert tail(Family.IPV4, off) == [f"{local} ! -d 127.0.0.0/8 {ports}"]
    assert tail(Family.IPV6, IptablesSettings()) == [f"{local} ! -d ::1/128 {ports}"]


def test_node_ports_on_some_addresses_of_which_loopback_counts_only_where_it_can_work():
    def settings(**more: bool) -> IptablesSettings:
        addresses = {
            Family.IPV4: (Address("127.0.0.1"), Address("192.168.50.11")),
            Family.IPV6: (Address("::1"), Address("fd00::11")),
        }
        return IptablesSettings(node_port_addresses=addresses, **more)

    assert tail(Family.IPV4, settings()) == ["-d 127.0.0.1 -j KUBE-NODEPORTS", "-d 192.168.50.11 -j KUBE-NODEPORTS"]
    assert tail(Family.IPV4, settings(localhost_node_ports=False)) == ["-d 192.168.50.11 -j KUBE-NODEPORTS"]
    assert tail(Family.IPV6, settings()) == ["-d fd00::11 -j KUBE-NODEPORTS"]


def test_no_address_with_open_node_ports_means_no_rule():
    assert tail(Family.IPV4, IptablesSettings(node_port_addresses={Family.IPV4: ()})) == []


def test_without_localhost_node_ports_the_guard_is_left_to_kubelet():
    assert "KUBE-FIREWALL" not in render(settings=IptablesSettings(localhost_node_ports=False))
    assert "KUBE-FIREWALL" not in render(family=Family.IPV6)


# -- parts of a service port -------------------------------------------------------------------------------------------


def render_residue(*kept: FrontendKind) -> str:
    """Rules for some of the frontends of FRONT: the others are carried by another datapath."""
    name = service_name("front")
    (resolved,) = table_of(FRONT, FRONT_SLICE).ports_of(name)
    frontends = tuple(frontend for frontend in resolved.frontends if frontend.kind in kept)
    table = ServiceTable()
    table.replace(name, (msgspec.structs.replace(resolved, frontends=frontends),))
    book = RuleBook(Family.IPV4, SETTINGS)
    book.update_all(table)
    return complete_input(book).text


def test_a_service_port_without_its_cluster_ip_keeps_everything_else():
    text = render_residue(FrontendKind.NODE_PORT)
    assert "10.96.50.5" not in text
    assert "203.0.113.8" not in text
    assert len(rules_of(text, "KUBE-NODEPORTS")) == 1
    assert rules_of(text, "KUBE-SVC-VPWLIZ4UCZR3AVHA")


def test_a_service_port_with_nothing_but_its_cluster_ip_has_no_external_chain():
    text = render_residue(FrontendKind.CLUSTER_IP)
    assert "KUBE-EXT-" not in text
    assert "KUBE-FW-" not in text
    assert rules_of(text, "KUBE-SEP-LAIPUCZNHDS6GZYL")


def test_a_service_port_without_frontends_has_no_chains():
    assert "VPWLIZ4UCZR3AVHA" not in render_residue()


def test_every_chain_that_is_jumped_to_is_declared_in_the_same_input():
    text = render(WEB, WEB_SLICE, FRONT, FRONT_SLICE, STREAM, stream_slice("10.244.1.40", REMOTE))
    declared = set(re.findall(r"^:(\S+)", text, re.MULTILINE))
    targets = set(re.findall(r" -j (KUBE-\S+)", text))
    assert targets <= declared


def test_an_address_claimed_twice_is_written_for_its_owner_alone():
    first = service("a", external_ips=["203.0.113.8"])
    second = service("b", cluster_ips=["10.96.0.11"], external_ips=["203.0.113.8"])
    text = render(first, second, endpoint_slice("a", "10.244.1.1"), endpoint_slice("b", "10.244.1.2"))
    assert '"shop/a external IP"' in text
    assert '"shop/b external IP"' not in text
