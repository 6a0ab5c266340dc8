"""New generations while sockets connect: every connect meets one whole generation."""

import pytest

from kbpf.datapath.ebpf.shapes import Reason
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import UDP, VIP4, Backend, Frontend, put_generation, put_service, sweep_generation

pytestmark = pytest.mark.root

SERVICE = 7


def generation_of(number: int) -> tuple[Backend, ...]:
    """Disjoint backends of changing numbers: a mixed reading would name a slot that does not exist."""
    size = 1 + number % 7
    return tuple(Backend(number * 10 + each, f"10.244.0.{1 + each % 3}", 1000 + number % 5000) for each in range(size))


def test_connects_beside_changing_generations_never_fail(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], generation_of(1), protocols=[UDP])
    pod = node.pod()
    before = node.maps.stats.read()
    pod.start("connects", VIP4, 80, 100_000)
    generation = 1
    while pod.is_busy():
        generation += 1
        put_generation(node.maps, SERVICE, generation_of(generation), protocol=UDP, generation=generation)
        sweep_generation(node.maps, SERVICE, generation - 1)
    assert pod.finish() == {VIP4: 100_000}
    assert generation > 100
    after = node.maps.stats.read()
    assert after[Reason.CHOSEN] - before[Reason.CHOSEN] == 100_000


def test_a_new_generation_is_not_seen_before_the_service_says_so(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], (Backend(1, "10.244.0.1"),))
    pod = node.pod()
    pod.serve(["10.244.0.1", "10.244.0.2"])
    committed = node.maps.services.entries()
    put_generation(node.maps, SERVICE, (Backend(2, "10.244.0.2"),), generation=2)
    node.maps.services.update(committed)  # as if the writer had died before its last step
    assert pod.ask("requests", "tcp", VIP4, 80, 20) == {"10.244.0.1:8080": 20}
