"""What an operator is told once, before rules carry traffic."""

from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.host.fake import FakeSysctls
from kbpf.host.sysctl import Sysctl
from kbpf.model.address import Family
from kbpf.model.detector import LocalDetector
from kbpf.node_advice import iptables_advice

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
