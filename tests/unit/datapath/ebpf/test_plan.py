"""The plan of a change, as it is printed: the order is the invariant, so the tests show all of it."""

from kbpf.datapath.ebpf import text
from kbpf.datapath.ebpf.layout import SERVICES, SLOTS
from kbpf.datapath.ebpf.plan import Delete, Plan, Put, plan
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import ServiceKey, ServiceValue
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, port, service, table_of
from tests.ebpf_node import EbpfNode

SERVICE = service("web", port(80), session_affinity="ClientIP")
OLD = table_of(SERVICE, endpoint_slice("web", "10.42.1.5", "10.42.1.6"))
NEW = table_of(SERVICE, endpoint_slice("web", "10.42.1.6", "10.42.1.7"))
FRONTEND = "frontends address=10.96.0.10 port=80 protocol=TCP"
SERVED = (
    "kind=CLUSTER_IP service_id=1 flags=0 defer_reason=NONE internal_view=CLUSTER internal_verdict=REJECT"
    " external_view=CLUSTER external_verdict=REJECT"
)
FOR_EVER = "last_generation=4294967295"
NO_PACKETS = (
    "node_address4=:: node_address6=:: flags=STANDS_APART masquerade_mark=16384 udp_timeout_s=30"
    " udp_stream_timeout_s=120"
)


def prepared(old: ServiceTable | None, new: ServiceTable) -> str:
    node = EbpfNode()
    node.sync(old or ServiceTable())
    return str(node.prepare(new).plan)


def test_a_new_service_is_complete_before_its_frontend_leads_to_it():
    assert prepared(None, OLD) == (
        f"put config number=0 -> host_netns_cookie=7 next_service_id=2 next_backend_id=3 {NO_PACKETS}\n"
        "put backends id=1 -> address=10.42.1.5 port=8080 protocol=TCP\n"
        "put backends id=2 -> address=10.42.1.6 port=8080 protocol=TCP\n"
        f"put membership service_id=1 backend_id=1 view=CLUSTER -> first_generation=1 {FOR_EVER}\n"
        f"put membership service_id=1 backend_id=2 view=CLUSTER -> first_generation=1 {FOR_EVER}\n"
        "put slots service_id=1 generation=1 view=CLUSTER position=0 -> backend_id=1 backend=10.42.1.5:8080/TCP\n"
        "put slots service_id=1 generation=1 view=CLUSTER position=1 -> backend_id=2 backend=10.42.1.6:8080/TCP\n"
        "put names id=1 -> text=shop/web\n"
        "put services id=1 -> generation=1 n_cluster=2 n_local=0 affinity_timeout_s=10800\n"
        f"put {FRONTEND} -> {SERVED}\n"
    )


def test_a_new_generation_is_complete_before_the_service_switches_to_it_and_the_old_one_is_swept_after():
    assert prepared(OLD, NEW) == (
        f"put config number=0 -> host_netns_cookie=7 next_service_id=2 next_backend_id=4 {NO_PACKETS}\n"
        "put backends id=3 -> address=10.42.1.7 port=8080 protocol=TCP\n"
        "put membership service_id=1 backend_id=1 view=CLUSTER -> first_generation=1 last_generation=1\n"
        f"put membership service_id=1 backend_id=3 view=CLUSTER -> first_generation=2 {FOR_EVER}\n"
        "put slots service_id=1 generation=2 view=CLUSTER position=0 -> backend_id=2 backend=10.42.1.6:8080/TCP\n"
        "put slots service_id=1 generation=2 view=CLUSTER position=1 -> backend_id=3 backend=10.42.1.7:8080/TCP\n"
        "put services id=1 -> generation=2 n_cluster=2 n_local=0 affinity_timeout_s=10800\n"
        "delete slots service_id=1 generation=1 view=CLUSTER position=0\n"
        "delete slots service_id=1 generation=1 view=CLUSTER position=1\n"
        "delete membership service_id=1 backend_id=1 view=CLUSTER\n"
        "delete backends id=1\n"
    )


def test_a_removed_service_leaves_from_the_frontend_inwards():
    assert prepared(OLD, ServiceTable()) == (
        f"delete {FRONTEND}\n"
        "delete services id=1\n"
        "delete slots service_id=1 generation=1 view=CLUSTER position=0\n"
        "delete slots service_id=1 generation=1 view=CLUSTER position=1\n"
        "delete membership service_id=1 backend_id=1 view=CLUSTER\n"
        "delete membership service_id=1 backend_id=2 view=CLUSTER\n"
        "delete backends id=1\n"
        "delete backends id=2\n"
        "delete names id=1\n"
    )


def test_another_affinity_timeout_needs_one_write_and_no_generation():
    plain = table_of(service("web", port(80)), endpoint_slice("web", "10.42.1.5", "10.42.1.6"))
    assert prepared(OLD, plain) == "put services id=1 -> generation=1 n_cluster=2 n_local=0 affinity_timeout_s=0\n"


def test_nothing_to_do_is_an_empty_plan():
    assert plan(Rows(), Rows()) == Plan()
    assert prepared(OLD, OLD) == ""


def test_writes_are_counted_row_by_row():
    two = {ServiceKey(number): ServiceValue(1, 0, 0, number, 0) for number in (1, 2)}
    assert Plan((Put(SERVICES, two), Delete(SLOTS, ("a", "b", "c")))).writes == 5


def test_a_member_whose_row_was_closed_by_a_plan_that_broke_off_is_a_member_again():
    service = "services id=1 -> generation={} n_cluster=1 n_local=0 affinity_timeout_s=0\n"
    member = "membership service_id=1 backend_id=7 view=CLUSTER -> first_generation={} last_generation={}\n"
    known = text.parse(service.format(4) + member.format(2, 4))
    wanted = text.parse(service.format(5) + member.format(5, 4294967295))
    assert f"put {member.format(2, 4294967295)}" in str(plan(known, wanted))
