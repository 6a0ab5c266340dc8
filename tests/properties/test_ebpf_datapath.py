"""The eBPF datapath over maps without a kernel: whatever the cluster does, a call finds what the reference allows.

A history is a list of clusters, each a few Services with endpoints; the datapath is brought from one to the next, with
a new process or a refused write now and then.
"""

from hypothesis import given
from hypothesis import strategies as st

from kbpf.datapath.ebpf import shapes
from kbpf.datapath.ebpf.fake import NthWrite, ShareOfWrites, never
from kbpf.datapath.ebpf.plan import Put, Step
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import LocalFlag, Reason, ServiceKey, ServiceValue
from kbpf.datapath.ebpf.trace import Trace, trace
from kbpf.errors import MapError
from kbpf.model.address import Address, Family
from kbpf.model.detector import LocalDetector
from kbpf.model.flow import Action, Flow, Origin, Verdict
from kbpf.model.names import Protocol
from kbpf.model.objects import EndpointSlice, Service
from kbpf.model.table import Backend, FrontendKey, ServiceTable, View
from kbpf.policy.reference import ReferenceNode, expected_verdict
from tests.builders import endpoint, endpoint_slice, flow, port, service, slice_port, table_of
from tests.ebpf_node import EbpfNode

NAMES = ("a", "b", "c")
CLUSTER_IPS = ("10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4")
PORTS = {80: Protocol.TCP, 53: Protocol.UDP}
PODS = {f"10.42.{node}.{number}": f"n{node}" for node in (1, 2) for number in (1, 2)}
NO_SERVICE = ServiceValue(0, 0, 0, 0, 0)
EXTERNAL_IP, NODE_ADDRESS, CLOSED_ADDRESS = "203.0.113.9", "192.168.60.11", "172.16.0.1"
NODE = ReferenceNode(
    local_addresses=frozenset(map(Address, (NODE_ADDRESS, CLOSED_ADDRESS))),
    node_port_addresses=frozenset({Address(NODE_ADDRESS)}),
    detectors={Family.IPV4: LocalDetector(cidr="10.42.0.0/16")},
)
LOCAL_FLAGS = {Address(NODE_ADDRESS): LocalFlag.NODE_PORT, Address(CLOSED_ADDRESS): LocalFlag(0)}
SOURCES = {Origin.POD: "10.42.1.9", Origin.HOST: NODE_ADDRESS}
NODE_PORTS = {30000 + number: protocol for number, protocol in PORTS.items()}
FLOWS = [
    flow(origin, source, address, number, protocol)
    for origin, source in SOURCES.items()
    for addresses, numbers in (((*CLUSTER_IPS, EXTERNAL_IP), PORTS), ((NODE_ADDRESS,), NODE_PORTS))
    for address in addresses
    for number, protocol in numbers.items()
]
CLOSED_FLOWS = [
    flow(origin, source, CLOSED_ADDRESS, number, protocol)
    for origin, source in SOURCES.items()
    for number, protocol in NODE_PORTS.items()
]


@st.composite
def workloads(draw: st.DrawFn, name: str, cluster_ip: str) -> list[Service | EndpointSlice]:
    """A Service with one or two ports and its slice: any policy, any endpoints."""
    numbers = draw(st.sampled_from([(80,), (80, 53), (53,)]))
    pods = draw(st.lists(st.sampled_from(sorted(PODS)), unique=True))
    return [
        service(
            name,
            *(port(number, f"p{number}", PORTS[number].value, node_port=30000 + number) for number in numbers),
            cluster_ips=[cluster_ip],
            session_affinity=draw(st.sampled_from(["None", "ClientIP"])),
            internal_traffic_policy=draw(st.sampled_from(["Cluster", "Local"])),
            external_traffic_policy=draw(st.sampled_from(["Cluster", "Local"])),
            external_ips=draw(st.sampled_from([[], [EXTERNAL_IP]])),
            type=draw(st.sampled_from(["ClusterIP", "NodePort"])),
        ),
        endpoint_slice(
            name,
            *(endpoint(pod, PODS[pod], ready=draw(st.booleans())) for pod in pods),
            ports=[slice_port(8000 + number, f"p{number}", PORTS[number].value) for number in numbers],
        ),
    ]


@st.composite
def clusters(draw: st.DrawFn) -> ServiceTable:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    cluster_ips = draw(st.permutations(CLUSTER_IPS))
    workload = [draw(workloads(name, cluster_ip)) for name, cluster_ip in zip(names, cluster_ips, strict=False)]
    return table_of(*(thing for things in workload for thing in things))


def new_node() -> EbpfNode:
    node = EbpfNode()
    node.local_addresses = LOCAL_FLAGS
    return node


histories = st.lists(clusters(), min_size=1, max_size=4)


def without_locality(verdict: Verdict) -> tuple[Action, frozenset[tuple[str, int]]]:
    """The maps do not say which backend is local, and sockets are never masqueraded."""
    return verdict.action, frozenset((backend.address, backend.port) for backend in verdict.backends)


def check_against_reference(rows: Rows, table: ServiceTable) -> None:
    for each in FLOWS + CLOSED_FLOWS:
        expected = expected_verdict(table, each, NODE)
        assert without_locality(trace(rows, each).verdict) == without_locality(expected), each


def traces(rows: Rows) -> dict[Flow, Trace]:
    return {each: trace(rows, each) for each in FLOWS}


def check_membership(rows: Rows) -> None:
    """Affinity and one socket's datagrams stay with a backend for as long as this says that it is in the list."""
    listed, members = set(), set()
    for key, slot in rows.slots.items():
        if key.generation == rows.services.get(ServiceKey(key.service_id), NO_SERVICE).generation:
            listed.add((key.service_id, slot.backend_id, key.view))
    for key, member in rows.membership.items():
        if key.view == shapes.View.KEPT:
            continue  # no new choice falls on these
        generation = rows.services.get(ServiceKey(key.service_id), NO_SERVICE).generation
        if member.first_generation <= generation <= member.last_generation:
            members.add(tuple(key))
    assert members == listed


def moved_backends(each: Flow, old: ServiceTable, new: ServiceTable) -> frozenset[Backend]:
    """What a call to an address that its service port gives up may still find: the new backends of that port."""
    is_cluster_ip, is_node_port = each.destination in CLUSTER_IPS, each.port in NODE_PORTS
    address = None if is_node_port else each.destination
    owner = old.owner(FrontendKey(Family.IPV4, address, each.port, each.protocol))
    ports = new.ports_of(owner.service) if owner else ()
    views = [(port, port.internal.view if is_cluster_ip else View.CLUSTER) for port in ports if port.name == owner]
    found = [port.backends(view) for port, view in views]
    return frozenset(backend._replace(is_local=False) for backends in found for backend in backends)


def single_writes(steps: tuple[Step, ...], rows: Rows):
    """Carry out the steps on `rows`, pausing after each single write."""
    for step in steps:
        held = rows.of(step.spec)
        for key in step.rows if isinstance(step, Put) else step.keys:
            if isinstance(step, Put):
                held[key] = step.rows[key]
            else:
                del held[key]
            yield step, key


@given(histories, st.booleans())
def test_after_each_sync_calls_find_what_the_reference_allows(history: list[ServiceTable], full: bool):
    node = new_node()
    for cluster in history:
        node.sync(cluster, full=full)
        check_against_reference(node.rows, node.table)


@given(histories)
def test_partial_syncs_leave_the_same_maps_as_a_full_one_would(history: list[ServiceTable]):
    node = new_node()
    for cluster in history:
        node.sync(cluster)
        assert not any(node.datapath.examine())
    before = node.maps.dump()
    assert node.sync(history[-1], full=True).writes == 0
    node.restart()
    assert node.sync(history[-1]).writes == 0
    assert node.maps.dump() == before


@given(clusters(), clusters(), st.booleans())
def test_between_any_two_writes_a_call_finds_the_old_backends_or_the_new_ones(
    old: ServiceTable, new: ServiceTable, full: bool
):
    node = new_node()
    node.sync(old)
    rows, before = node.rows, traces(node.rows)
    prepared = node.prepare(new, full=full)
    node.datapath.commit(prepared)
    after = traces(node.rows)
    for step, key in single_writes(prepared.plan.steps, rows):
        if step.spec.name in ("membership", "slots", "services") and isinstance(step, Put):
            check_membership(rows)
        for each, now in traces(rows).items():
            assert now.reason not in (Reason.NO_SERVICE, Reason.NO_BACKEND), (step, key)
            moved = moved_backends(each, old, new)
            assert now.verdict.backends in (before[each].verdict.backends, after[each].verdict.backends, moved), step
    assert rows == node.rows
    check_membership(rows)


@given(clusters(), clusters(), st.integers(1, 40), st.booleans())
def test_a_plan_that_broke_off_anywhere_is_repaired_and_nobody_else_notices(
    old: ServiceTable, new: ServiceTable, number: int, is_killed: bool
):
    node = new_node()
    node.sync(old)
    before = traces(node.rows)
    node.maps.fail(NthWrite(number))
    try:
        node.sync(new)
    except MapError:
        broken = node.rows
    else:
        return
    node.maps.fail(never)
    if is_killed:
        node.restart()
    prepared = node.prepare(new)
    node.datapath.commit(prepared)
    after = traces(node.rows)
    check_against_reference(node.rows, node.table)
    unchanged = [each for each in FLOWS if before[each].verdict == after[each].verdict]
    unchanged = [each for each in unchanged if moved_backends(each, old, new) == after[each].verdict.backends]
    for step, key in single_writes(prepared.plan.steps, broken):
        for each in unchanged:
            assert trace(broken, each).verdict == after[each].verdict, (step, key)
    assert node.sync(new, full=True).writes == 0


@given(histories, st.integers(0, 2**16))
def test_with_writes_refused_by_chance_the_next_good_sync_heals_everything(history: list[ServiceTable], seed: int):
    node, refusals = new_node(), ShareOfWrites(0.1, seed)
    node.maps.fail(refusals)
    for cluster in history:
        try:
            node.sync(cluster)
        except MapError:
            node.restart()
    node.maps.fail(never)
    node.sync(history[-1], full=True)
    check_against_reference(node.rows, node.table)
    assert node.sync(history[-1], full=True).writes == 0


@given(histories, st.integers(0, 2**16))
def test_an_id_is_never_given_twice(history: list[ServiceTable], seed: int):
    node, refusals = new_node(), ShareOfWrites(0.05, seed)
    node.maps.fail(refusals)
    backends: dict[int, tuple] = {}
    seen: set[int] = set()
    gone: set[int] = set()
    for cluster in [*history, ServiceTable(), *history]:
        try:
            node.sync(cluster)
        except MapError:
            node.restart()
        rows = node.rows
        for key, value in rows.backends.items():
            assert backends.setdefault(key.id, value) == value
        services = {key.id for key in rows.services}
        gone |= seen - services
        seen |= services
        assert not services & gone


@given(histories)
def test_when_every_service_is_gone_only_the_ids_to_come_are_left(history: list[ServiceTable]):
    node = new_node()
    for cluster in [*history, ServiceTable()]:
        node.sync(cluster)
    assert [spec.name for spec, rows in node.rows if rows] == ["config", "local_addr"]
