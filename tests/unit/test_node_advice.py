"""What an operator is told once, before rules carry traffic."""

from msgspec.structs import replace

from kbpf.config import Config, ListenAddress
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.host.fake import FakeSysctls
from kbpf.host.sysctl import Sysctl
from kbpf.model.address import Address, Family
from kbpf.model.detector import DetectLocalMode, LocalDetector
from kbpf.model.objects import Node
from kbpf.node_advice import iptables_advice, port_advice, settings_advice
from tests.builders import node

PODS_KNOWN = IptablesSettings(detectors={Family.IPV4: LocalDetector(cidr="10.42.0.0/16")})


def test_a_node_in_order_gives_no_advice():
    for values in ({}, {Sysctl.BRIDGE_CALLS_IPTABLES: 1}):
        assert list(iptables_advice(PODS_KNOWN, FakeSysctls(values))) == []


def test_without_a_way_to_tell_pods_callers_from_outside_keep_their_address():
    (words,) = iptables_advice(IptablesSettings(), FakeSysctls())
    assert words.startswith("no range or interface of pods is known (--cluster-cidr")
    assert list(iptables_advice(IptablesSettings(masquerade_all=True), FakeSysctls())) == []


def test_bridges_that_pass_iptables_by_are_named():
    (words,) = iptables_advice(PODS_KNOWN, FakeSysctls({Sysctl.BRIDGE_CALLS_IPTABLES: 0}))
    assert words.startswith("net.bridge.bridge-nf-call-iptables is 0")


DUAL = Config(node_ips=(Address("192.168.60.11"), Address("fd60::11")), node_port_addresses=("primary",))


def advice(config: Config, own: Node | None = None, **changes: object) -> list[str]:
    return list(settings_advice(replace(config, **changes), own))  # type: ignore[arg-type]


def test_settings_that_leave_nothing_out_give_no_advice():
    ranges = {Family.IPV4: "10.42.0.0/16", Family.IPV6: "fd42::/16"}
    assert advice(DUAL, cluster_cidrs=ranges) == []
    assert advice(DUAL) == []


def test_node_ports_that_are_open_everywhere_are_named():
    (words,) = advice(DUAL, node_port_addresses=())
    assert words.startswith("node ports are open on every address of this node; --nodeport-addresses=primary")


def test_ranges_without_a_family_that_the_node_has_are_named():
    assert advice(DUAL, cluster_cidrs={Family.IPV6: "fd42::/16"}) == [
        "--cluster-cidr: no IPv4 range, though the first address of this node is IPv4"
    ]
    assert advice(DUAL, cluster_cidrs={Family.IPV4: "10.42.0.0/16"}, node_port_addresses=("10.0.0.0/8",)) == [
        "--nodeport-addresses: no IPv6 range, though an address of this node is IPv6",
        "--cluster-cidr: no IPv6 range, though an address of this node is IPv6",
    ]


def test_pod_ranges_of_the_node_count_where_they_are_what_tells_pods():
    own = node("n1", "192.168.60.11", pod_cidrs=("fd42:1::/64",))
    by_node = replace(DUAL, node_ips=(), detect_local_mode=DetectLocalMode.NODE_CIDR)
    assert advice(by_node, own) == ["the Node's podCIDRs: no IPv4 range, though the first address of this node is IPv4"]
    assert advice(replace(by_node, detect_local_mode=DetectLocalMode.CLUSTER_CIDR), own) == []


def test_addresses_of_the_other_family_are_named_unless_they_are_loopback_or_any():
    six = ListenAddress("fd60::11", 10256)
    assert advice(DUAL, healthz_address=six) == [
        "--healthz-bind-address: [fd60::11]:10256 is IPv6, the first address of this node is IPv4"
    ]
    assert advice(DUAL, healthz_address=ListenAddress("::", 1), metrics_address=ListenAddress("::1", 2)) == []


def test_ports_that_sockets_of_the_node_may_get_although_they_are_node_ports_are_named():
    (words,) = port_advice(lambda ports: 30080 in ports)
    assert words.startswith("net.ipv4.ip_local_port_range reaches into 30000-32767")
    assert list(port_advice(lambda ports: 32768 in ports)) == []
