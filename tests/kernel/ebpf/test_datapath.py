"""The whole datapath on real maps, programs and sockets: from a ServiceTable to the pod that answers."""

import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import factory, libbpf, links, loader
from kbpf.datapath.ebpf.backend import EbpfDatapath
from kbpf.datapath.ebpf.hooks import HOOKS
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.datapath.ebpf.sizes import DEFAULT_ENTRIES
from kbpf.datapath.interface import Answer
from kbpf.errors import LoadFailed, MapError
from kbpf.head_start import HeadStart
from kbpf.host.clsact import ClsactFilters
from kbpf.model.address import Address
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, port, service, slice_port, table_of
from tests.kernel.ebpf.builds import SMALL, describe
from tests.kernel.ebpf.world import Pod

pytestmark = pytest.mark.root

Start = Callable[[], EbpfDatapath]
MakePod = Callable[[], Pod]

LOCAL = {
    Address("127.0.0.1"): LocalFlag.LOOPBACK,
    Address("::1"): LocalFlag.LOOPBACK,
    Address("192.168.50.1"): LocalFlag.NODE_PORT,
}
TCP4 = service("web", cluster_ips=["10.96.0.10"])


def cluster(*addresses: str) -> ServiceTable:
    """Service web at 10.96.0.10:80 and [fd96::10]:80, dns at 10.96.0.53:53/UDP, all with these IPv4 endpoints."""
    return table_of(
        TCP4,
        endpoint_slice("web", *addresses),
        service("dns", port(53, protocol="UDP"), cluster_ips=["10.96.0.53"]),
        endpoint_slice("dns", *addresses, ports=[slice_port(8080, protocol="UDP")]),
        service("six", cluster_ips=["fd96::10"]),
        endpoint_slice("six", "fd44::1", family="IPv6"),
    )


@pytest.fixture
def own_root(root: Path, cgroup: Path) -> Iterator[Path]:
    """Cleared before the cgroup is: that one checks that nothing is attached any more."""
    own = root.with_name(f"{root.name}-datapath")
    yield own
    links.detach(Pins(own).links)
    remove(own)


@pytest.fixture
def start(own_root: Path, cgroup: Path) -> Iterator[Start]:
    """A daemon's datapath; each call is another process as far as the datapath can tell."""
    started: list[EbpfDatapath] = []

    def create() -> EbpfDatapath:
        started.append(factory.create(own_root, cgroup, lambda: LOCAL, ClsactFilters(), sizes=SMALL))
        return started[-1]

    yield create
    for datapath in started:
        datapath.cleanup()  # a process that ends closes its maps; these are all in one


def sync(datapath: EbpfDatapath, table: ServiceTable, *, full: bool = False):
    return datapath.sync(table, frozenset(table.services), full=full)


def test_from_a_table_to_the_pod_that_answers(start: Start, pods: MakePod) -> None:
    datapath = start()
    assert datapath.probe().answer is Answer.YES
    sync(datapath, cluster("10.244.0.1", "10.244.0.2"))
    pod = pods()
    pod.serve(["10.244.0.1", "10.244.0.2", "fd44::1"])
    answered = pod.ask("requests", "tcp", "10.96.0.10", 80, 100)
    assert set(answered) == {"10.244.0.1:8080", "10.244.0.2:8080"}
    assert min(answered.values()) > 20
    assert set(pod.ask("requests", "udp", "10.96.0.53", 53, 100)) == set(answered)
    assert pod.ask("requests", "tcp", "fd96::10", 80, 3) == {"fd44::1:8080": 3}


def test_endpoints_come_and_go_without_a_failed_call(start: Start, pods: MakePod) -> None:
    datapath = start()
    table = cluster("10.244.0.1", "10.244.0.2")
    sync(datapath, table)
    pod = pods()
    pod.start("connects", "10.96.0.53", 53, 50_000)
    syncs = 0
    while pod.is_busy():
        syncs += 1
        others = cluster(*(f"10.244.0.{1 + (syncs + each) % 3}" for each in range(1 + syncs % 3)))
        put(table, others)
        sync(datapath, table, full=syncs % 5 == 0)
    assert pod.finish() == {"10.96.0.53": 50_000}
    assert syncs > 20


def test_where_sockets_cannot_be_ended_udp_is_left_to_iptables_and_tcp_is_not(
    own_root: Path, cgroup: Path, pods: MakePod
) -> None:
    datapath = factory.create(own_root, cgroup, lambda: LOCAL, ClsactFilters(), can_end_sockets=False, sizes=SMALL)
    assert sync(datapath, cluster("10.244.0.1")).deferred == {"no-destroy": 1}
    pod = pods()
    pod.serve(["10.244.0.1"])
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 2) == {"10.244.0.1:8080": 2}
    assert pod.ask("requests", "udp", "10.96.0.53", 53, 2) == {f"errno {errno.ENETUNREACH}": 2}
    datapath.cleanup()


@pytest.mark.usefixtures("set_retval")
def test_without_endpoints_a_call_is_refused_at_once(start: Start, pods: MakePod) -> None:
    sync(start(), cluster())
    pod = pods()
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 2) == {f"errno {errno.ECONNREFUSED}": 2}


def test_a_restart_writes_nothing_and_loads_nothing(start: Start, own_root: Path) -> None:
    sync(start(), cluster("10.244.0.1"))
    before = start().dump()
    build = describe(Pins(own_root), SMALL)
    programs = links.program_ids(Pins(own_root).program_folder(build.hash))
    assert programs, "the build that is in force"
    report = sync(start(), cluster("10.244.0.1"))
    assert (report.full, report.writes) == (True, 0)
    assert start().dump() == before
    assert links.program_ids(Pins(own_root).program_folder(build.hash)) == programs


def test_links_that_somebody_removed_come_back(start: Start, own_root: Path, cgroup: Path) -> None:
    datapath = start()
    sync(datapath, cluster("10.244.0.1"))
    links.detach(Pins(own_root).links)
    assert not links.attached(Pins(own_root), cgroup)
    assert datapath.lost()
    assert sync(datapath, cluster("10.244.0.1"), full=True).writes == 9
    assert len(links.attached(Pins(own_root), cgroup)) == 9


def test_pins_that_somebody_removed_come_back_with_what_the_maps_held(
    start: Start, own_root: Path, pods: MakePod
) -> None:
    datapath = start()
    table = cluster("10.244.0.1")
    sync(datapath, table)
    remove(own_root)
    assert sync(datapath, table).writes == len(HOOKS)
    pod = pods()
    pod.serve(["10.244.0.1"])
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 3) == {"10.244.0.1:8080": 3}


def test_when_there_can_be_no_larger_maps_only_what_does_not_fit_is_left_to_iptables(
    own_root: Path, cgroup: Path, pods: MakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(**sizes: int) -> EbpfDatapath:
        return factory.create(own_root, cgroup, lambda: LOCAL, ClsactFilters(), sizes={**SMALL, **sizes})

    sync(create(services=5), cluster("10.244.0.1"))
    datapath = create()
    sync(datapath, cluster("10.244.0.1"))
    monkeypatch.setattr(loader.ensure_loaded, "__defaults__", (("/nonexistent/python",),))
    table = cluster("10.244.0.1")
    put(table, more_services())
    report = sync(datapath, table)
    assert report.deferred == {"spilled": 2}
    assert "no room in services (5 entries)" in report.warnings[0]
    pod = pods()
    pod.serve(["10.244.0.1"])
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 3) == {"10.244.0.1:8080": 3}
    monkeypatch.undo()
    datapath.cleanup()


def test_a_first_sync_that_needs_larger_maps_than_the_head_start_makes_gets_them(
    own_root: Path, cgroup: Path, pods: MakePod
) -> None:
    def create() -> EbpfDatapath:
        return factory.create(own_root, cgroup, lambda: LOCAL, ClsactFilters())

    head_start = HeadStart(lambda own: create())
    head_start.begin(None)
    table = cluster("10.244.0.1")
    put(table, crowd(DEFAULT_ENTRIES["backends"] // CROWD + 1))
    datapath, pins = create(), Pins(own_root)
    head_start.wait_for_maps()
    report = sync(datapath, table)
    assert report.deferred == {}
    with closing(Maps.open(pins)) as maps:
        assert maps.backends.spec.max_entries > DEFAULT_ENTRIES["backends"]
        assert maps.backends.size() > DEFAULT_ENTRIES["backends"]
    assert not any(pins.outgrown_maps.iterdir())
    assert sync(datapath, table, full=True).writes == 0
    pod = pods()
    pod.serve(["10.244.0.1"])
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 3) == {"10.244.0.1:8080": 3}
    datapath.cleanup()


CROWD = 1000
"""Endpoints of a service of a crowd."""


def crowd(size: int) -> ServiceTable:
    return table_of(
        *(service(f"many{number}", cluster_ips=[f"10.96.7.{number + 1}"]) for number in range(size)),
        *(
            endpoint_slice(f"many{number}", *(f"10.{64 + number}.{n // 250}.{n % 250 + 1}" for n in range(CROWD)))
            for number in range(size)
        ),
    )


def put(table: ServiceTable, others: ServiceTable) -> None:
    for name in others.services:
        table.replace(name, others.ports_of(name))


def more_services() -> ServiceTable:
    return table_of(*(service(name, cluster_ips=[f"10.96.1.{number}"]) for number, name in enumerate("yz", start=1)))


def test_programs_that_fail_the_self_test_are_not_attached(
    start: Start, own_root: Path, cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A frontend table that the programs cannot read the test's address from: nothing would be translated.
    monkeypatch.setattr("kbpf.datapath.ebpf.selftest.PROBE_PORT", 2)
    monkeypatch.setattr("kbpf.datapath.ebpf.selftest._frontend", lambda protocol: (bytes(16), 9, protocol))
    with pytest.raises(LoadFailed, match="the self-test failed: the probe address was not translated"):
        sync(start(), cluster("10.244.0.1"))
    assert not links.attached(Pins(own_root), cgroup)


def test_a_cgroup_that_is_not_there_fails_as_a_load_with_its_name(own_root: Path, cgroup: Path) -> None:
    datapath = factory.create(own_root, cgroup / "none", lambda: LOCAL, ClsactFilters(), sizes=SMALL)
    with pytest.raises(LoadFailed, match="none"):
        sync(datapath, cluster("10.244.0.1"))


def test_cleanup_leaves_nothing_of_ours_and_everything_of_others(start: Start, own_root: Path, cgroup: Path) -> None:
    datapath = start()
    sync(datapath, cluster("10.244.0.1"))
    foreign = own_root / "foreign"
    foreign.mkdir()
    datapath.cleanup()
    start().cleanup()
    assert list(own_root.iterdir()) == [foreign]
    with links.open_cgroup(cgroup) as fd:
        assert not libbpf.attached_program_ids(fd, 10)
    foreign.rmdir()
    datapath.cleanup()
    assert not own_root.exists()


def test_two_instances_with_roots_of_their_own_do_not_meet(
    start: Start, own_root: Path, cgroup: Path, pods: MakePod
) -> None:
    first = start()
    sync(first, cluster("10.244.0.1"))
    inner = cgroup / "inner"
    inner.mkdir()
    other_root = own_root.with_name(f"{own_root.name}-other")
    second = factory.create(other_root, inner, lambda: LOCAL, ClsactFilters(), sizes=SMALL)
    sync(second, table_of(service("web", cluster_ips=["10.96.0.99"]), endpoint_slice("web", "10.244.0.2")))
    second.cleanup()
    inner.rmdir()
    assert not other_root.exists()
    pod = pods()
    pod.serve(["10.244.0.1"])
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 3) == {"10.244.0.1:8080": 3}


def test_programs_with_other_maps_than_those_that_were_written_are_not_attached(
    start: Start, own_root: Path, cgroup: Path, pods: MakePod
) -> None:
    datapath, table, pins = start(), cluster("10.244.0.1"), Pins(own_root)
    datapath.load(lambda: None)
    prepared = datapath.prepare(table, frozenset(table.services), full=True)
    pins.map("frontends").unlink()
    with pytest.raises(MapError, match="the maps were replaced"):
        datapath.commit(prepared)
    assert not links.attached(pins, cgroup)
    sync(datapath, table)
    pod = pods()
    pod.serve(["10.244.0.1"])
    assert pod.ask("requests", "tcp", "10.96.0.10", 80, 3) == {"10.244.0.1:8080": 3}


def test_a_loader_that_cannot_run_fails_as_a_load(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader.ensure_loaded, "__defaults__", (("/nonexistent/python",),))
    with pytest.raises(LoadFailed, match="no Python with BCC"):
        sync(start(), cluster())
