"""One Service with 5,000 endpoints: a call costs what it costs with one, and each endpoint gets its share."""

import time
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.found import read_choices
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import UDP, VIP4, Backend, Frontend, Pod, put_service

pytestmark = pytest.mark.root

ENDPOINTS, CALLS = 5000, 50_000
SMALL, LARGE = 70_001, 70_002  # whom no other test has counted calls to
LARGE_VIP = "10.96.0.11"


@pytest.fixture
def pod(node: Node) -> Pod:
    """The endpoints have no route, so a call ends right behind the choice."""
    put_service(node.maps, SMALL, [Frontend(VIP4)], endpoints(1, first=ENDPOINTS), protocols=[UDP])
    put_service(node.maps, LARGE, [Frontend(LARGE_VIP)], endpoints(ENDPOINTS), protocols=[UDP])
    return node.pod()


def endpoints(count: int, first: int = 0) -> tuple[Backend, ...]:
    return tuple(Backend(n + 1, f"10.100.{n // 250}.{n % 250 + 1}") for n in range(first, first + count))


def test_each_endpoint_gets_its_share(root: Path, pod: Pod) -> None:
    pod.ask("connects", LARGE_VIP, 80, CALLS)
    counted = {key.backend_id: count for key, count in read_choices(root).items() if key.service_id == LARGE}
    found, expected = [counted.get(backend.id, 0) for backend in endpoints(ENDPOINTS)], CALLS / ENDPOINTS
    assert sum(found) == CALLS
    chi_square = sum((count - expected) ** 2 / expected for count in found)
    # Its mean is the degrees of freedom and its variance twice that: six standard deviations are one in a billion.
    freedom = ENDPOINTS - 1
    assert abs(chi_square - freedom) < 6 * (2 * freedom) ** 0.5


def test_a_call_costs_what_it_costs_with_one_endpoint(pod: Pod) -> None:
    def fastest(address: str) -> float:
        started = time.perf_counter()
        pod.ask("connects", address, 80, 500)
        return time.perf_counter() - started

    rounds = [(fastest(VIP4), fastest(LARGE_VIP)) for _ in range(20)]
    one, all_of_them = (min(times) for times in zip(*rounds, strict=True))
    assert all_of_them < 1.5 * one
