"""How large the maps are made, and what growing leaves as it was."""

import pytest

from kbpf.datapath.ebpf.capacity import LIMIT, demand, fitting
from kbpf.datapath.ebpf.shapes import AffinityKey, AffinityValue
from kbpf.datapath.ebpf.sizes import GROWING
from kbpf.model.flow import Origin
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, flow, port, service, slice_port, table_of
from tests.ebpf_node import EbpfNode

PODS = ("10.42.1.5", "10.42.1.6")
TINY = dict.fromkeys(GROWING, 6)


def cluster(services: int) -> ServiceTable:
    objects = [
        each
        for number in range(services)
        for each in (
            service(f"s{number:04}", cluster_ips=[f"10.96.{number // 250}.{number % 250 + 1}"]),
            endpoint_slice(f"s{number:04}", *PODS),
        )
    ]
    return table_of(*objects)


def test_the_demand_counts_the_rows_of_each_map():
    fields = {"load_balancer_source_ranges": ["192.0.2.0/24", "198.51.100.0/24"], "type": "LoadBalancer"}
    table = table_of(
        service("web", port(80, node_port=30080), ingress=["203.0.113.9"], **fields),
        endpoint_slice("web", *PODS),
        service("dns", port(53, protocol="UDP"), cluster_ips=["10.96.0.53"]),
        endpoint_slice("dns", *PODS, ports=[slice_port(8080, protocol="UDP")]),
    )
    assert demand(table) == {
        "frontends": 4,
        "services": 2,
        "slots": 4,
        "membership": 4,
        "backends": 4,
        "source_ranges": 2,
    }


@pytest.mark.parametrize(
    ("size", "need", "becomes"),
    [
        (65536, 65534, 65536),
        (65536, 65535, 131072),
        (65536, 200_000, 524_288),
        (16, 15, 65536),
        (0, 1, 65536),
        (LIMIT, LIMIT, LIMIT),
    ],
    ids=["it fits", "no room for the self-test", "doubled", "never below the default", "not there yet", "the limit"],
)
def test_a_map_that_is_too_small_gets_room_for_twice_what_is_needed(size: int, need: int, becomes: int):
    assert fitting({"services": size}, {"services": need}, frozenset()) == {"services": becomes}


def test_a_size_that_was_set_and_a_table_that_forgets_by_itself_stay():
    sizes = {"services": 5, "affinity": 5}
    assert fitting(sizes, {"services": 99, "affinity": 99}, frozenset({"services"})) == sizes


def test_a_cluster_that_outgrows_the_maps_is_served_whole_under_the_ids_that_it_had():
    node = EbpfNode(first_sizes=TINY)
    node.sync(cluster(1))
    before = node.rows
    client = AffinityKey(bytes(16), 1)
    node.maps.affinity.update({client: AffinityValue(1, 1, 1)})
    report = node.sync(cluster(40))
    assert (report.full, report.deferred, report.warnings) == (True, {}, ())
    after = node.rows
    for spec, rows in before:
        if spec.name != "config":
            assert rows.items() <= after.of(spec).items(), spec.name
    assert client in after.affinity
    assert node.trace(flow(Origin.POD, "10.42.1.9", "10.96.0.40")).verdict.backends
    assert not node.sync(cluster(41)).full


def test_maps_that_an_earlier_process_made_larger_are_not_made_anew():
    node = EbpfNode(first_sizes=TINY)
    node.sync(cluster(40))
    sizes = {spec.name: spec.max_entries for spec in node.programs.specs}
    node.restart()
    assert node.sync(cluster(39), full=True).deferred == {}
    assert {spec.name: spec.max_entries for spec in node.programs.specs} == sizes


def test_only_what_may_not_grow_is_spilled_and_named():
    node = EbpfNode({"slots": 5}, first_sizes={"services": 3})
    report = node.sync(cluster(4))
    assert report.deferred == {"spilled": 3}
    assert all("no room in slots (5 entries)" in warning for warning in report.warnings)
    assert node.sync(cluster(4)).writes == 0
