"""From two readings of counters to connections per second."""

from kbpf.datapath.ebpf.choices import GONE, Destination
from kbpf.datapath.ebpf.shapes import BackendKey, ChoiceKey
from kbpf.model.address import Address
from kbpf.model.table import Backend
from kbpf.questions.top import Rate, by_programs, by_rules, rates
from tests.asked_node import AskedNode
from tests.builders import endpoint_slice, service, table_of

A, B = Destination("shop/web", "10.42.1.5:8080"), Destination("shop/web", "10.42.1.6:8080")


def test_choices_find_service_and_backend():
    found = AskedNode().sync(table_of(service("web"), endpoint_slice("web", "10.42.1.5", "10.42.1.6"))).kernel.found
    assert found is not None
    assert by_programs(found.rows, {ChoiceKey(1, 1): 3, ChoiceKey(1, 2): 4}) == {A: 3, B: 4}
    assert BackendKey(9) not in found.rows.backends
    assert by_programs(found.rows, {ChoiceKey(8, 9): 5}) == {Destination(GONE, GONE): 5}


def test_two_rules_for_one_backend_count_together():
    backend = Backend(Address("10.42.1.5"), 8080)
    assert by_rules(iter([("shop/web", backend, 2), ("shop/web", backend, 3)])) == {A: 5}


def test_rates_are_differences_the_busiest_first():
    assert rates({A: 10, B: 1}, {A: 12, B: 11}, 2.0) == (Rate(B, 10, 5.0), Rate(A, 2, 1.0))


def test_who_is_new_counts_from_nothing_and_so_does_a_counter_that_began_anew():
    assert rates({A: 10}, {A: 3, B: 4}, 1.0) == (Rate(B, 4, 4.0), Rate(A, 3, 3.0))


def test_who_got_nothing_is_left_out():
    assert rates({A: 10, B: 2}, {A: 10}, 1.0) == ()
