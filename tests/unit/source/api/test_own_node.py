"""The wait for the own Node, and the changes of it that end the process."""

import msgspec
import pytest

from kbpf.clock import FakeClock
from kbpf.errors import RestartNeeded
from kbpf.model.objects import Node
from kbpf.source.api.own_node import NodeIdentity, NodeWait
from tests.api_answers import node_tree


def node(*addresses: str, pod_cidrs: tuple[str, ...] = ()) -> Node:
    return msgspec.convert(node_tree("n1", *addresses, pod_cidrs=pod_cidrs), Node)


READY = node("192.168.60.11")


def over_after(wait: NodeWait, clock: FakeClock, answer: Node | None) -> float:
    start = clock.monotonic()
    while not wait.is_over(answer):
        clock.advance(1)
    return clock.monotonic() - start


def test_a_node_with_an_address_is_waited_for_no_longer():
    clock = FakeClock()
    wait = NodeWait("n1", clock, needs_pod_ranges=False)
    assert not wait.is_over(None)
    clock.advance(5)
    assert not wait.is_over(node())
    assert wait.is_over(READY)
    assert wait.regret(READY) == ""


@pytest.mark.parametrize(("answer", "regret"), [(None, "does not exist"), (node(), "has no addresses")])
def test_after_half_a_minute_it_goes_without_and_says_so(answer, regret):
    clock = FakeClock()
    wait = NodeWait("n1", clock, needs_pod_ranges=False)
    assert over_after(wait, clock, answer) == 30
    assert regret in wait.regret(answer)


def test_the_wait_counts_from_the_first_answer_not_from_the_start():
    clock = FakeClock()
    wait = NodeWait("n1", clock, needs_pod_ranges=False)
    clock.advance(1000)
    assert over_after(wait, clock, None) == 30


def test_pod_ranges_are_waited_for_only_where_they_are_needed():
    clock = FakeClock()
    wait = NodeWait("n1", clock, needs_pod_ranges=True)
    assert not wait.is_over(READY)
    clock.advance(300)
    assert wait.is_over(node("192.168.60.11", pod_cidrs=("10.42.1.0/24",)))


@pytest.mark.parametrize("answer", [READY, None])
def test_without_pod_ranges_the_mode_that_needs_them_cannot_start(answer):
    clock = FakeClock()
    wait = NodeWait("n1", clock, needs_pod_ranges=True)
    with pytest.raises(RestartNeeded, match=r"no spec\.podCIDRs"):
        over_after(wait, clock, answer)
    assert clock.monotonic() == 1000 + 330


def settled(first: Node | None, *, needs_pod_ranges: bool = False) -> NodeIdentity:
    identity = NodeIdentity("n1", needs_pod_ranges=needs_pod_ranges)
    if first is not None:
        assert identity.reason_to_restart(first) == ""
    identity.settle()
    return identity


def test_what_changes_nothing_that_was_decided_is_no_reason():
    identity = settled(READY)
    assert identity.reason_to_restart(node("192.168.60.11", "192.168.60.12", pod_cidrs=("10.42.1.0/24",))) == ""


@pytest.mark.parametrize(
    ("first", "now", "reason"),
    [
        (READY, node("192.168.60.21"), "addresses of Node n1 changed from 192.168.60.11 to 192.168.60.21"),
        (READY, node("192.168.60.11", "fd00::11"), "to 192.168.60.11, fd00::11"),
        (READY, None, "Node n1 was deleted"),
        (None, READY, "changed from none to 192.168.60.11"),
    ],
)
def test_other_addresses_and_a_deletion_end_the_process(first, now, reason):
    assert reason in settled(first).reason_to_restart(now)


def test_other_pod_ranges_end_the_process_where_they_matter():
    first, now = node("192.168.60.11", pod_cidrs=("10.42.1.0/24",)), node("192.168.60.11", pod_cidrs=("10.42.9.0/24",))
    assert settled(first).reason_to_restart(now) == ""
    reason = settled(first, needs_pod_ranges=True).reason_to_restart(now)
    assert "from 10.42.1.0/24 to 10.42.9.0/24" in reason


def test_a_node_that_was_never_there_and_still_is_not_is_no_reason():
    assert settled(None).reason_to_restart(None) == ""
