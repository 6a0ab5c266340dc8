"""Counters in rules: only where the kernel takes them, and then as kube-proxy writes them."""

from collections.abc import Sequence

import pytest

from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.counters import COUNTERS, match_works
from kbpf.model.names import ServiceName
from tests.builders import endpoint_slice, port, service, table_of
from tests.contract.iptables.hosts import Host

NOTHING: frozenset[ServiceName] = frozenset()
TABLE = table_of(
    service("web", port(80, node_port=30080), cluster_ips=["10.96.0.10", "fd96::10"], type="NodePort"),
    endpoint_slice("web", "10.244.1.5"),
    endpoint_slice("web", "fd00:10:244:1::5", family="IPv6"),
)


@pytest.fixture
def counting_host(host: Host) -> Host:
    if not host.create_counters(COUNTERS) or not match_works(host.tool()):
        pytest.skip("this kernel has no nfacct counters, or no match for them")
    return host


def counting_datapath(host: Host) -> IptablesDatapath:
    return host.datapath(create_counters=host.create_counters)


def counted(host: Host) -> list[str]:
    dump = host.datapath().dump()
    return [line.split(" -m comment")[0].partition(" -m nfacct")[0] for line in dump.splitlines() if "nfacct" in line]


def test_making_counters_that_exist_is_fine(counting_host: Host):
    assert counting_host.create_counters(COUNTERS)


def test_a_counter_that_does_not_exist_is_found_out_and_the_trial_leaves_nothing(host: Host):
    assert not match_works(host.tool())
    assert host.datapath().dump() == ""


def test_packets_to_be_dropped_and_localhost_node_ports_are_counted(counting_host: Host):
    counting_datapath(counting_host).sync(TABLE, NOTHING, full=True)
    assert counted(counting_host) == [
        "IPv4 filter -A KUBE-FORWARD -m conntrack --ctstate INVALID",
        "IPv4 nat -A KUBE-NODEPORTS -d 127.0.0.0/8 -p tcp",
        "IPv6 filter -A KUBE-FORWARD -m conntrack --ctstate INVALID",
    ]


def test_a_restart_finds_the_counting_rules_in_place(counting_host: Host):
    counting_datapath(counting_host).sync(TABLE, NOTHING, full=True)
    assert counting_datapath(counting_host).sync(TABLE, NOTHING, full=True).writes == 0


def test_rules_are_written_without_counters_where_the_match_is_missing(host: Host):
    def promise(names: Sequence[str]) -> bool:
        """The objects are said to exist, but no rule can refer to them."""
        return True

    assert host.datapath(create_counters=promise).sync(TABLE, NOTHING, full=True).writes > 0
    assert counted(host) == []


def test_cleanup_leaves_nothing_of_them(counting_host: Host):
    datapath = counting_datapath(counting_host)
    datapath.sync(TABLE, NOTHING, full=True)
    datapath.cleanup()
    assert datapath.dump() == ""
