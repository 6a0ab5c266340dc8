"""The eBPF datapath over maps without a kernel: syncs, restarts, what does not fit, what fails, and what is left."""

import pytest

from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.fake import NthWrite, never
from kbpf.datapath.ebpf.node import says_apart
from kbpf.datapath.ebpf.plan import Put
from kbpf.datapath.ebpf.room import RESERVED
from kbpf.datapath.ebpf.shapes import (
    AffinityKey,
    AffinityValue,
    BackendKey,
    ConfigFlag,
    DeferReason,
    IndexKey,
    LocalAddrKey,
    LocalAddrValue,
    LocalFlag,
    Reason,
    ServiceKey,
    SlotKey,
    SlotValue,
    View,
    WantedKey,
    WantedValue,
)
from kbpf.errors import LoadFailed, MapError
from kbpf.model.address import Address, packed
from kbpf.model.flow import REJECT, Origin
from kbpf.model.table import FrontendKind, ServiceTable
from tests.builders import endpoint, endpoint_slice, flow, port, service, table_of
from tests.ebpf_node import EbpfNode

PODS = ("10.42.1.5", "10.42.1.6")
WEB = table_of(service("web"), endpoint_slice("web", *PODS))
BOTH = table_of(
    service("web"),
    endpoint_slice("web", *PODS),
    service("zoo", cluster_ips=["10.96.0.20"]),
    endpoint_slice("zoo", "10.42.1.6", "10.42.1.7"),
)
TO_WEB = flow(Origin.POD, "10.42.1.9", "10.96.0.10")
TO_ZOO = flow(Origin.POD, "10.42.1.9", "10.96.0.20")


@pytest.fixture
def node() -> EbpfNode:
    return EbpfNode()


def addresses(node: EbpfNode, where=TO_WEB) -> set[str]:
    return {backend.address for backend in node.trace(where).verdict.backends}


# ---- what a sync writes


def test_the_report_says_what_was_done(node: EbpfNode):
    node.sync(WEB, full=True)
    report = node.sync(table_of(service("web"), endpoint_slice("web", "10.42.1.5")))
    assert report.sentence == "synced of 1 services: 7 writes in 0.0 ms via ebpf"


def test_a_change_writes_nothing_about_other_services(node: EbpfNode):
    node.sync(WEB)
    before = set(node.maps.dump().splitlines())
    plan = node.prepare(BOTH).plan
    assert "service_id=1 " not in str(plan)
    assert "services id=1 " not in str(plan)
    node.restart()
    node.sync(BOTH)
    assert {line for line in before if not line.startswith("config")} < set(node.maps.dump().splitlines())


def test_a_backend_that_two_services_share_has_one_row_until_the_last_one_leaves(node: EbpfNode):
    node.sync(BOTH)
    assert len(node.rows.backends) == 3
    node.sync(WEB)
    assert {key.id for key in node.rows.backends} == {1, 2}
    node.sync(ServiceTable())
    assert not node.rows.backends


def test_a_change_after_somebody_took_the_programs_away_looks_at_everything(node: EbpfNode):
    node.sync(WEB)
    node.programs.attached = False
    assert node.sync(BOTH).full
    assert node.programs.attached
    assert not node.sync(WEB).full


def test_an_address_that_another_service_takes_over_never_leads_nowhere(node: EbpfNode):
    node.sync(WEB)
    moved = table_of(service("zoo"), endpoint_slice("zoo", "10.42.1.7"))
    plan = str(node.prepare(moved).plan)
    assert "delete frontends" not in plan
    node.restart()
    node.sync(moved)
    assert addresses(node) == {"10.42.1.7"}


def test_a_changed_policy_gets_a_service_of_its_own_because_list_and_view_cannot_switch_together(node: EbpfNode):
    everywhere = endpoint_slice("web", "10.42.1.5", endpoint("10.42.2.5", "n2"))
    node.sync(table_of(service("web"), everywhere))
    node.sync(table_of(service("web", internal_traffic_policy="Local"), everywhere))
    assert addresses(node) == {"10.42.1.5"}
    assert set(node.rows.services) == {ServiceKey(2)}


def test_local_addresses_follow_the_node_and_hide_a_cluster_ip(node: EbpfNode):
    node.local_addresses = {Address("127.0.0.1"): LocalFlag.LOOPBACK, Address("10.96.0.10"): LocalFlag(0)}
    node.sync(WEB)
    assert node.trace(TO_WEB).reason is Reason.LOCAL_ADDRESS
    node.local_addresses = {Address("127.0.0.1"): LocalFlag.LOOPBACK | LocalFlag.NODE_PORT}
    node.sync(WEB, full=True)
    assert node.rows.local_addr == {LocalAddrKey(packed(Address("127.0.0.1"))): LocalAddrValue(3)}
    assert addresses(node) == set(PODS)


def test_a_change_of_a_service_does_not_ask_for_the_addresses_of_the_node(node: EbpfNode):
    node.sync(WEB)
    node.local_addresses = {Address("10.96.0.20"): LocalFlag.PRIMARY}
    assert not node.sync(BOTH).full
    assert not node.rows.local_addr


def test_programs_are_told_whether_frontends_stand_apart_from_the_nodes_addresses(node: EbpfNode):
    node.local_addresses = {Address("10.96.0.20"): LocalFlag.NODE_PORT}
    node.sync(WEB, full=True)
    assert says_apart(node.rows)
    plan = node.prepare(BOTH).plan
    assert str(plan).startswith("put config"), "before the frontend that does not is there"
    node.restart()
    node.sync(BOTH)
    assert not says_apart(node.rows)
    assert node.trace(TO_ZOO).reason is Reason.LOCAL_ADDRESS


def test_that_frontends_stand_apart_again_is_told_once_the_last_other_one_is_gone(node: EbpfNode):
    node.local_addresses = {Address("10.96.0.20"): LocalFlag.NODE_PORT}
    node.sync(BOTH)
    node.sync(WEB)
    assert not says_apart(node.rows), "its row may still be there while the programs are told"
    node.sync(WEB, full=True)
    assert says_apart(node.rows)


# ---- restarts


def test_a_restart_with_the_same_cluster_writes_nothing(node: EbpfNode):
    node.sync(BOTH)
    before = node.maps.dump()
    node.restart()
    report = node.sync(BOTH)
    assert (report.full, report.writes, node.maps.dump()) == (True, 0, before)


def test_what_left_while_the_daemon_was_down_is_removed_by_its_first_sync(node: EbpfNode):
    node.sync(BOTH)
    node.restart()
    node.sync(WEB)
    assert node.trace(TO_ZOO).reason is Reason.NOT_A_FRONTEND
    assert set(node.rows.services) == {ServiceKey(1)}


def test_ids_of_rows_that_are_gone_are_not_given_again_after_a_restart(node: EbpfNode):
    node.sync(BOTH)
    node.sync(WEB)
    node.restart()
    node.sync(BOTH)
    assert set(node.rows.services) == {ServiceKey(1), ServiceKey(3)}
    assert {key.id for key in node.rows.backends} == {1, 2, 4}


def test_an_emptied_config_map_does_not_start_the_ids_anew(node: EbpfNode):
    node.sync(WEB)
    node.maps.config.update({IndexKey(0): node.rows.config[IndexKey(0)]._replace(next_service_id=0, next_backend_id=0)})
    node.restart()
    node.sync(BOTH)
    assert set(node.rows.services) == {ServiceKey(1), ServiceKey(2)}
    assert {key.id for key in node.rows.backends} == {1, 2, 3}


DAMAGE = {
    "slot": lambda maps: maps.slots.delete(list(maps.slots.entries())[:1]),
    "backend": lambda maps: maps.backends.delete([BackendKey(1)]),
    "foreign backend": lambda maps: maps.backends.update({BackendKey(1): maps.backends.lookup(BackendKey(2))}),
    "membership": lambda maps: maps.membership.delete(list(maps.membership.entries())),
    "frontend": lambda maps: maps.frontends.delete(list(maps.frontends.entries())),
    "service": lambda maps: maps.services.delete([ServiceKey(1)]),
    "foreign service": lambda maps: maps.services.update(
        {ServiceKey(1): maps.services.lookup(ServiceKey(1))._replace(id=9)}
    ),
}
SURPLUS = {
    "surplus slot": lambda maps: maps.slots.update({SlotKey(9, 1, View.CLUSTER, 0): SlotValue(9, 1, 1, bytes(20))}),
    "surplus frontend": lambda maps: maps.frontends.update(
        {key._replace(port=9): value._replace(port=9) for key, value in maps.frontends.entries().items()}
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_full_sync_repairs_what_others_damaged(node: EbpfNode, damage):
    node.sync(WEB)
    damage(node.maps)
    assert node.sync(WEB, full=True).writes > 0
    assert addresses(node) == set(PODS)
    assert len(node.rows.membership) == len(node.rows.slots) == 2
    assert node.sync(WEB, full=True).writes == 0


def found_by(node: EbpfNode) -> set[str]:
    return {words for step in node.datapath.examine() for words in step}


@pytest.mark.parametrize("damage", [*DAMAGE.values(), *SURPLUS.values()], ids=[*DAMAGE, *SURPLUS])
def test_an_examination_finds_what_others_damaged_and_names_the_map(node: EbpfNode, damage):
    node.sync(WEB)
    assert found_by(node) == set()
    before = node.rows
    damage(node.maps)
    altered = {spec.name for spec, rows in node.rows if rows != before.of(spec)}
    assert found_by(node) == {f"entries of {name}" for name in altered}
    node.sync(WEB, full=True)
    assert found_by(node) == set()


def test_an_examination_minds_what_syncs_write_between_its_steps(node: EbpfNode):
    node.sync(BOTH)
    steps = node.datapath.examine()
    assert next(steps) == ()
    node.sync(WEB)
    assert not any(steps)


def test_an_examination_says_nothing_while_nobody_knows_what_the_maps_hold(node: EbpfNode):
    assert list(node.datapath.examine()) == []
    node.sync(BOTH)
    steps = node.datapath.examine()
    node.maps.fail(NthWrite(1))
    with pytest.raises(MapError):
        node.sync(WEB)
    assert list(steps) == []


@pytest.mark.parametrize("full", [False, True])
def test_after_any_change_an_examination_finds_everything_in_place(node: EbpfNode, full: bool):
    few = table_of(service("web"), endpoint_slice("web", PODS[0]))
    for cluster in (WEB, few, BOTH, WEB, few, WEB):
        node.sync(cluster, full=full)
        assert found_by(node) == set()


# ---- affinity


def affinity(service_id: int) -> dict[AffinityKey, AffinityValue]:
    return {AffinityKey(bytes(16), service_id): AffinityValue(1, 1, service_id)}


@pytest.mark.parametrize("full", [False, True])
def test_clients_keep_their_backend_when_a_policy_gives_their_service_port_another_id(node: EbpfNode, full: bool):
    slices = endpoint_slice("web", endpoint(PODS[0]), endpoint(PODS[1], node="n2"))
    node.sync(table_of(service("web", session_affinity="ClientIP"), slices))
    node.maps.affinity.update(affinity(1))
    plan = node.prepare(
        table_of(service("web", session_affinity="ClientIP", internal_traffic_policy="Local"), slices), full=full
    )
    node.datapath.commit(plan)
    assert node.rows.affinity == affinity(2)
    steps = [step.spec.name for step in plan.plan.steps if isinstance(step, Put)]
    assert steps.index("affinity") < steps.index("frontends")


def test_affinity_rows_go_with_their_service(node: EbpfNode):
    sticky = table_of(service("web", session_affinity="ClientIP"), endpoint_slice("web", *PODS))
    node.sync(sticky)
    node.maps.affinity.update(affinity(1) | affinity(9))
    node.sync(ServiceTable())
    assert set(node.rows.affinity) == set(affinity(9))
    node.sync(ServiceTable(), full=True)
    assert not node.rows.affinity


def test_affinity_rows_go_when_the_service_has_no_affinity_any_more(node: EbpfNode):
    slices = endpoint_slice("web", *PODS)
    node.sync(table_of(service("web", session_affinity="ClientIP"), slices))
    node.maps.affinity.update(affinity(1) | affinity(9))
    node.sync(table_of(service("web"), slices))
    assert set(node.rows.affinity) == set(affinity(9))


def test_affinity_rows_of_a_service_that_stays_are_the_programs_own(node: EbpfNode):
    sticky = service("web", session_affinity="ClientIP")
    node.sync(table_of(sticky, endpoint_slice("web", *PODS)))
    node.maps.affinity.update(affinity(1))
    node.sync(table_of(sticky, endpoint_slice("web", "10.42.1.6")), full=True)
    assert node.rows.affinity == affinity(1)


# ---- what does not fit


def sizes(**room: int) -> dict[str, int]:
    """Maps with this much room for services."""
    return {name: RESERVED + entries for name, entries in room.items()}


def test_a_service_that_does_not_fit_is_left_to_iptables_whole_and_named():
    node = EbpfNode(sizes(slots=3))
    report = node.sync(BOTH)
    assert report.warnings == (
        "shop/zoo (IPv4) does not fit the maps and is left to iptables:"
        " no room in slots (5 entries): raise --bpf-slot-entries",
    )
    assert report.deferred == {"spilled": 1}
    assert addresses(node) == set(PODS)
    assert node.trace(TO_ZOO).defer_reason is DeferReason.SPILLED
    assert set(node.rows.services) == {ServiceKey(1)}
    web, zoo = BOTH
    assert (node.datapath.residue(web), node.datapath.residue(zoo)) == (None, zoo)


@pytest.mark.parametrize("name", ["services", "backends", "membership"])
def test_every_map_is_counted(name: str):
    node = EbpfNode(sizes(**{name: 1}))
    [warning] = node.sync(WEB if name != "services" else BOTH).warnings
    assert f"no room in {name} (3 entries)" in warning


def test_without_room_even_for_leave_alone_there_is_no_frontend():
    node = EbpfNode(sizes(frontends=1))
    assert len(node.sync(BOTH).warnings) == 1
    assert node.trace(TO_ZOO).reason is Reason.NOT_A_FRONTEND
    assert addresses(node) == set(PODS)


def test_a_service_comes_back_when_another_makes_room():
    node = EbpfNode(sizes(slots=3))
    node.sync(BOTH)
    node.sync(table_of(*zoo("10.42.1.7")))
    report = node.sync(table_of(*zoo("10.42.1.7", "10.42.1.8")))
    assert (report.warnings, addresses(node, TO_ZOO)) == ((), {"10.42.1.7", "10.42.1.8"})


def zoo(*pods: str):
    return service("zoo", cluster_ips=["10.96.0.20"]), endpoint_slice("zoo", *pods)


def test_what_lacked_room_only_while_an_old_generation_stood_beside_the_new_one_is_tried_again():
    node = EbpfNode(sizes(slots=4))
    node.sync(WEB)
    renewed = [service("web"), endpoint_slice("web", "10.42.1.5", "10.42.1.7")]
    crowded = table_of(*renewed, *zoo("10.42.1.6", "10.42.1.7"))
    assert len(node.sync(crowded).warnings) == 1
    assert node.datapath.sync(node.table, frozenset(), full=False).warnings == ()
    assert addresses(node, TO_ZOO) == {"10.42.1.6", "10.42.1.7"}


def test_more_backends_than_a_service_row_can_count_do_not_fit(node: EbpfNode, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kbpf.datapath.ebpf.admit.VIEW_LIMIT", 1)
    assert node.sync(WEB).warnings == (
        "shop/web (IPv4) does not fit the maps and is left to iptables: 2 backends, more than 1",
    )


def test_a_service_that_outgrows_the_maps_takes_its_rows_along():
    node = EbpfNode(sizes(slots=3))
    node.sync(WEB)
    node.sync(table_of(service("web"), endpoint_slice("web", *PODS, "10.42.1.7", "10.42.1.8")))
    assert node.trace(TO_WEB).defer_reason is DeferReason.SPILLED
    assert [spec.name for spec, rows in node.rows if rows] == ["config", "frontends"]


# ---- what is left to iptables


def test_deferred_frontends_are_counted_by_reason_through_changes(node: EbpfNode):
    shared = service("web", port(80, node_port=30080), type="NodePort", external_ips=["203.0.113.9"])
    sctp = service("sctp", port(80, protocol="SCTP"), cluster_ips=["10.96.0.30"])
    assert node.sync(table_of(shared, sctp)).deferred == {"sctp": 1, "external": 2}
    assert node.sync(table_of(service("web"), sctp)).deferred == {"sctp": 1}
    assert node.sync(ServiceTable()).deferred == {}


def test_the_residue_is_what_the_maps_say_to_leave_alone(node: EbpfNode):
    shared = table_of(service("web", external_ips=["203.0.113.9"]), endpoint_slice("web", *PODS))
    node.sync(shared)
    [left] = [node.datapath.residue(each) for each in shared]
    assert left is not None
    assert [frontend.kind for frontend in left.frontends] == [FrontendKind.EXTERNAL_IP]


def test_the_residue_knows_frontends_that_another_service_owns(node: EbpfNode):
    first = service("a", cluster_ips=["10.96.0.1"], external_ips=["203.0.113.9"])
    second = service("b", cluster_ips=["10.96.0.2"], external_ips=["203.0.113.9"])
    node.sync(table_of(first, second))
    assert [node.datapath.residue(each) is None for each in node.table] == [False, True]


def test_settings_decide_what_is_deferred():
    node = EbpfNode(settings=DeferSettings(can_reject=False))
    empty = table_of(service("web"))
    node.sync(empty)
    assert node.trace(TO_WEB).defer_reason is DeferReason.NO_RETVAL
    node = EbpfNode()
    node.sync(empty)
    assert node.trace(TO_WEB).verdict == REJECT


# ---- the packet path


SHARED = table_of(service("web", external_ips=["203.0.113.9"]), endpoint_slice("web", *PODS))
GUARDED = service(
    "web", type="LoadBalancer", ingress=["203.0.113.5"], load_balancer_source_ranges=["192.0.2.0/24", "10.0.0.0/8"]
)


@pytest.fixture
def gateway() -> EbpfNode:
    """Its packet programs are in force on a device."""
    node = EbpfNode()
    node.programs.serves_packets = True
    return node


def test_external_frontends_leave_the_residue_when_a_device_is_served_and_come_back_when_none_is(gateway: EbpfNode):
    gateway.programs.serves_packets = False
    assert gateway.sync(SHARED).deferred == {"external": 1}
    gateway.programs.serves_packets = True
    assert gateway.sync(SHARED, full=True).deferred == {}
    assert [gateway.datapath.residue(each) for each in gateway.table] == [None]
    gateway.programs.serves_packets = False
    assert gateway.sync(SHARED, full=True).deferred == {"external": 1}


def test_the_masquerade_rule_is_needed_while_an_external_frontend_is_served(gateway: EbpfNode):
    assert not gateway.prepare(WEB).masquerades
    gateway.sync(WEB)
    assert gateway.prepare(SHARED).masquerades
    gateway.sync(SHARED)
    assert gateway.rows.config[IndexKey(0)].flags == ConfigFlag.MASQUERADES | ConfigFlag.STANDS_APART
    gateway.sync(WEB)
    assert gateway.rows.config[IndexKey(0)].flags == ConfigFlag.STANDS_APART


@pytest.mark.parametrize("full", [False, True])
def test_it_is_needed_while_a_service_lives_whose_cluster_ip_has_clients_outside(gateway: EbpfNode, full: bool):
    gateway.sync(BOTH)
    gateway.maps.wanted.update({WantedKey(1): WantedValue(5)})
    prepared = gateway.prepare(BOTH, full=full)
    assert prepared.masquerades
    gateway.datapath.commit(prepared)
    gateway.sync(ServiceTable(), full=full)
    assert gateway.rows.config[IndexKey(0)].flags == ConfigFlag.STANDS_APART
    assert not gateway.rows.wanted


def test_source_ranges_come_before_their_frontend_and_follow_it(gateway: EbpfNode):
    guarded = table_of(GUARDED, endpoint_slice("web", *PODS))
    prepared = gateway.prepare(guarded)
    specs = [step.spec.name for step in prepared.plan.steps]
    assert specs.index("source_ranges") < specs.index("frontends")
    gateway.datapath.commit(prepared)
    assert len(gateway.rows.source_ranges) == 2
    gateway.restart()
    assert gateway.sync(guarded).writes == 0
    gateway.sync(WEB)
    assert not gateway.rows.source_ranges


def test_ranges_that_do_not_fit_spill_their_service_port():
    node = EbpfNode({"source_ranges": 3})
    node.programs.serves_packets = True
    report = node.sync(table_of(GUARDED, endpoint_slice("web", *PODS)))
    assert report.deferred == {"spilled": 2}
    assert "raise --bpf-source-range-entries" in report.warnings[0]


# ---- failures


def test_after_a_refused_write_the_next_sync_is_a_full_one(node: EbpfNode):
    node.sync(WEB)
    node.maps.fail(NthWrite(3))
    with pytest.raises(MapError, match="Input/output error"):
        node.sync(BOTH)
    node.maps.fail(never)
    assert node.sync(BOTH).full
    assert addresses(node, TO_ZOO) == {"10.42.1.6", "10.42.1.7"}


def test_hooks_are_attached_only_after_every_row_is_written(node: EbpfNode):
    node.maps.fail(NthWrite(5))
    with pytest.raises(MapError):
        node.sync(WEB)
    assert not node.programs.attached
    node.maps.fail(never)
    node.sync(WEB)
    assert node.programs.attached


def test_a_load_ahead_of_the_first_sync_puts_nothing_in_force_and_writes_no_row(node: EbpfNode):
    told: list[bool] = []
    node.datapath.load(lambda: told.append(node.programs.maps is not None and not node.programs.has_programs))
    assert told == [True]
    assert node.programs.has_programs
    assert (node.programs.attached, node.maps.writes) == (False, 0)
    loaded = node.programs.maps
    node.sync(WEB)
    assert node.programs.maps is loaded


def test_a_sync_writes_the_maps_before_it_needs_the_programs(node: EbpfNode):
    node.programs.compile_failure = LoadFailed("the compiler says no")
    with pytest.raises(LoadFailed, match="the compiler"):
        node.sync(WEB)
    assert node.maps.frontends.entries()
    assert not node.programs.attached
    node.programs.compile_failure = None
    assert node.sync(WEB).writes == 1
    assert node.programs.attached


def test_programs_that_do_not_load_or_attach_fail_the_sync_as_such(node: EbpfNode):
    node.programs.load_failure = LoadFailed("the verifier says no")
    with pytest.raises(LoadFailed, match="the verifier"):
        node.sync(WEB)
    node.programs.load_failure, node.programs.attach_failure = None, LoadFailed("the self-test failed")
    with pytest.raises(LoadFailed, match="self-test"):
        node.sync(WEB)
    node.programs.attach_failure = None
    assert node.sync(WEB).full


def test_hooks_that_somebody_removed_are_missed_and_come_back_with_the_next_full_sync(node: EbpfNode):
    node.sync(WEB)
    assert node.datapath.lost() == ()
    node.programs.attached = False
    assert node.datapath.lost()
    assert node.sync(WEB, full=True).writes == 1
    assert node.programs.attached


# ---- the end


def test_cleanup_leaves_nothing_and_may_be_called_twice(node: EbpfNode):
    node.sync(WEB)
    node.datapath.cleanup()
    node.datapath.cleanup()
    assert (node.programs.maps, node.programs.attached, node.datapath.dump()) == (None, False, "")


def test_a_sync_after_a_cleanup_begins_anew(node: EbpfNode):
    node.sync(WEB)
    node.datapath.cleanup()
    assert node.sync(WEB).full
    assert addresses(node) == set(PODS)


def test_another_process_can_dump_what_the_first_one_wrote(node: EbpfNode):
    node.sync(WEB)
    before = node.datapath.dump()
    node.restart()
    assert node.datapath.dump() == before != ""


# ---- what others take out of force


def test_nothing_is_lost_before_the_first_sync_and_after_it(node: EbpfNode):
    assert node.datapath.lost() == ()
    node.sync(WEB)
    assert node.datapath.lost() == ()


def test_programs_that_others_detached_are_missed_and_attached_again(node: EbpfNode):
    node.sync(WEB)
    node.programs.remove()
    assert len(node.datapath.lost()) == 1
    node.sync(WEB, full=True)
    assert node.datapath.lost() == ()
    assert addresses(node) == {*PODS}
