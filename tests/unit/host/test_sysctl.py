"""Which kernel settings are written, and what happens where they cannot be."""

import pytest

from kbpf.config import ConntrackSettings
from kbpf.errors import HostError
from kbpf.host.fake import FakeSysctls
from kbpf.host.sysctl import ConntrackTuning, Sysctl, allow_localnet, is_liberal, plan
from tests.logs import capture_logs

OBSERVED = {
    Sysctl.CONNTRACK_MAX: 65536,
    Sysctl.CONNTRACK_BUCKETS: 16384,
    Sysctl.TCP_TIMEOUT_ESTABLISHED: 432000,
    Sysctl.TCP_TIMEOUT_CLOSE_WAIT: 60,
    Sysctl.TCP_BE_LIBERAL: 0,
    Sysctl.UDP_TIMEOUT: 30,
    Sysctl.UDP_TIMEOUT_STREAM: 120,
    Sysctl.ROUTE_LOCALNET: 0,
}
LEAVE_ALONE = ConntrackSettings(max_per_core=0, tcp_timeout_established_s=0, tcp_timeout_close_wait_s=0)


def planned(wanted: ConntrackSettings, cores: int = 2, **observed: int) -> dict[Sysctl, int]:
    values = OBSERVED | {Sysctl[name.upper()]: value for name, value in observed.items()}
    return {write.sysctl: write.value for write in plan(wanted, cores, values)}


def test_the_defaults_are_those_of_kube_proxy():
    assert planned(ConntrackSettings()) == {
        Sysctl.CONNTRACK_MAX: 131072,
        Sysctl.CONNTRACK_BUCKETS: 32768,
        Sysctl.TCP_TIMEOUT_ESTABLISHED: 86400,
        Sysctl.TCP_TIMEOUT_CLOSE_WAIT: 3600,
    }


def test_what_is_right_already_is_not_written():
    wanted = ConntrackSettings(udp_timeout_s=30, udp_timeout_stream_s=120)
    assert (
        planned(
            wanted,
            conntrack_max=131072,
            conntrack_buckets=32768,
            tcp_timeout_established=86400,
            tcp_timeout_close_wait=3600,
        )
        == {}
    )


def test_zero_leaves_everything_as_the_system_has_it():
    assert planned(LEAVE_ALONE) == {}


@pytest.mark.parametrize(
    ("max_per_core", "minimum", "cores", "size"),
    [(32768, 131072, 8, 262144), (32768, 131072, 1, 131072), (32768, 131072, 128, 1048576), (0, 131072, 8, None)],
)
def test_the_size_of_the_table_follows_the_cores(max_per_core: int, minimum: int, cores: int, size: int | None):
    writes = planned(ConntrackSettings(max_per_core=max_per_core, min=minimum), cores)
    assert writes.get(Sysctl.CONNTRACK_MAX) == size
    assert writes.get(Sysctl.CONNTRACK_BUCKETS) == (size and size // 4)


def test_a_larger_table_than_wanted_is_kept():
    writes = planned(ConntrackSettings(), conntrack_max=262144, conntrack_buckets=65536)
    assert Sysctl.CONNTRACK_MAX not in writes
    assert Sysctl.CONNTRACK_BUCKETS not in writes


def test_the_buckets_follow_a_table_that_is_large_enough_already():
    assert planned(ConntrackSettings(), conntrack_max=131072)[Sysctl.CONNTRACK_BUCKETS] == 32768


def test_liberal_tracking_is_switched_on_and_never_off():
    assert planned(ConntrackSettings(tcp_be_liberal=True))[Sysctl.TCP_BE_LIBERAL] == 1
    assert Sysctl.TCP_BE_LIBERAL not in planned(ConntrackSettings(), tcp_be_liberal=1)


def test_udp_timeouts_are_written_when_they_are_asked_for():
    writes = planned(ConntrackSettings(udp_timeout_s=10, udp_timeout_stream_s=60))
    assert (writes[Sysctl.UDP_TIMEOUT], writes[Sysctl.UDP_TIMEOUT_STREAM]) == (10, 60)


def test_connection_tracking_that_is_not_loaded_is_left_alone_until_it_is():
    sysctls = FakeSysctls({Sysctl.ROUTE_LOCALNET: 0})
    tuning = ConntrackTuning(ConntrackSettings(), sysctls, 2)
    tuning.run()
    assert sysctls.values == {Sysctl.ROUTE_LOCALNET: 0}
    sysctls.values.update(OBSERVED)
    tuning.run()
    assert sysctls.read(Sysctl.TCP_TIMEOUT_CLOSE_WAIT) == 3600


def test_what_somebody_else_sets_later_stays():
    sysctls = FakeSysctls(dict(OBSERVED))
    tuning = ConntrackTuning(ConntrackSettings(), sysctls, 2)
    tuning.run()
    sysctls.write(Sysctl.TCP_TIMEOUT_CLOSE_WAIT, 60)
    tuning.run()
    assert sysctls.read(Sysctl.TCP_TIMEOUT_CLOSE_WAIT) == 60


def test_what_was_set_is_one_line():
    sysctls = FakeSysctls(dict(OBSERVED))
    with capture_logs() as logs:
        ConntrackTuning(ConntrackSettings(tcp_timeout_established_s=0), sysctls, 2).run()
    assert [entry["event"] for entry in logs] == [
        "set nf_conntrack_max from 65536 to 131072, hashsize from 16384 to 32768, "
        "nf_conntrack_tcp_timeout_close_wait from 60 to 3600"
    ]
    assert sysctls.read(Sysctl.CONNTRACK_MAX) == 131072


def test_defaults_that_cannot_be_written_are_one_line_and_the_rest_is_written():
    sysctls = FakeSysctls(dict(OBSERVED), frozenset({Sysctl.CONNTRACK_MAX, Sysctl.CONNTRACK_BUCKETS}))
    with capture_logs() as logs:
        ConntrackTuning(ConntrackSettings(), sysctls, 2).run()
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "left as the system has it: "
        "cannot set /proc/sys/net/netfilter/nf_conntrack_max to 131072: Permission denied; "
        "cannot set /sys/module/nf_conntrack/parameters/hashsize to 32768: Permission denied"
    ]
    assert sysctls.read(Sysctl.TCP_TIMEOUT_CLOSE_WAIT) == 3600


@pytest.mark.parametrize(
    ("wanted", "sysctl"),
    [
        (ConntrackSettings(max_per_core=65536), Sysctl.CONNTRACK_MAX),
        (ConntrackSettings(min=200000), Sysctl.CONNTRACK_MAX),
        (ConntrackSettings(tcp_timeout_established_s=7200), Sysctl.TCP_TIMEOUT_ESTABLISHED),
        (ConntrackSettings(tcp_be_liberal=True), Sysctl.TCP_BE_LIBERAL),
        (ConntrackSettings(udp_timeout_s=10), Sysctl.UDP_TIMEOUT),
    ],
)
def test_a_value_that_was_asked_for_and_cannot_be_written_stops_the_start(wanted: ConntrackSettings, sysctl: Sysctl):
    with pytest.raises(HostError, match=f"cannot set {sysctl.value} to .*: Permission denied"):
        ConntrackTuning(wanted, FakeSysctls(dict(OBSERVED), frozenset({sysctl})), 2).run()


def test_the_hash_size_never_stops_the_start():
    sysctls = FakeSysctls(dict(OBSERVED), frozenset({Sysctl.CONNTRACK_BUCKETS}))
    ConntrackTuning(ConntrackSettings(min=200000), sysctls, 2).run()
    assert sysctls.read(Sysctl.CONNTRACK_MAX) == 200000


def test_a_read_only_value_that_is_right_already_says_nothing():
    sysctls = FakeSysctls({Sysctl.CONNTRACK_MAX: 262144}, frozenset(Sysctl))
    with capture_logs() as logs:
        ConntrackTuning(ConntrackSettings(max_per_core=65536), sysctls, 2).run()
    assert logs == []


@pytest.mark.parametrize(
    ("asked_for", "observed", "liberal"), [(False, 0, False), (False, 1, True), (True, 0, True), (True, None, True)]
)
def test_tracking_is_liberal_when_the_system_has_it_so_or_the_options_ask_for_it(
    asked_for: bool, observed: int | None, liberal: bool
):
    sysctls = FakeSysctls({} if observed is None else {Sysctl.TCP_BE_LIBERAL: observed})
    assert is_liberal(ConntrackSettings(tcp_be_liberal=asked_for), sysctls) is liberal


def test_localhost_node_ports_switch_route_localnet_on():
    sysctls = FakeSysctls(dict(OBSERVED))
    assert allow_localnet(sysctls)
    assert sysctls.read(Sysctl.ROUTE_LOCALNET) == 1


def test_route_localnet_that_is_on_is_not_written():
    assert allow_localnet(FakeSysctls({Sysctl.ROUTE_LOCALNET: 1}, frozenset(Sysctl)))


def test_without_route_localnet_there_are_no_localhost_node_ports_and_one_line_says_so():
    with capture_logs() as logs:
        assert not allow_localnet(FakeSysctls(dict(OBSERVED), frozenset(Sysctl)))
    assert [entry["event"] for entry in logs] == [
        "no node ports on 127.0.0.1: cannot set /proc/sys/net/ipv4/conf/all/route_localnet to 1: Permission denied"
    ]
