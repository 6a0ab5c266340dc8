"""When /healthz says yes."""

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from kbpf.clock import FakeClock, SystemClock
from kbpf.config import ListenAddress
from kbpf.observe.health import HealthTracker
from kbpf.observe.http import HealthServer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def health(clock: FakeClock) -> HealthTracker:
    return HealthTracker(clock, timeout_s=60)


def test_nothing_is_healthy_before_the_first_complete_sync(health: HealthTracker):
    assert not health.snapshot().is_healthy


def test_a_finished_sync_makes_it_healthy(health: HealthTracker):
    health.updated()
    assert health.snapshot().is_healthy


def test_a_change_that_waits_too_long_makes_it_unhealthy(health: HealthTracker, clock: FakeClock):
    health.updated()
    health.queued()
    clock.advance(59)
    assert health.snapshot().is_healthy
    clock.advance(1)
    assert not health.snapshot().is_healthy


def test_later_changes_do_not_hide_the_oldest_one(health: HealthTracker, clock: FakeClock):
    health.updated()
    health.queued()
    clock.advance(40)
    health.queued()
    clock.advance(20)
    assert not health.snapshot().is_healthy


def test_a_quiet_cluster_stays_healthy(health: HealthTracker, clock: FakeClock):
    health.updated()
    clock.advance(86400)
    assert health.snapshot().is_healthy


def test_last_updated_equals_the_current_time_in_a_good_answer_only(health: HealthTracker, clock: FakeClock):
    health.updated()
    clock.advance(100)
    body = json.loads(health.snapshot().body(with_node=True))
    assert body["lastUpdated"] == body["currentTime"]
    health.queued()
    clock.advance(60)
    body = json.loads(health.snapshot().body(with_node=True))
    assert body["lastUpdated"] < body["currentTime"]


def test_the_liveness_body_says_nothing_of_the_node(health: HealthTracker):
    assert "nodeEligible" not in json.loads(health.snapshot().body(with_node=False))


@pytest.fixture
def served() -> Iterator[tuple[HealthTracker, ListenAddress]]:
    health = HealthTracker(SystemClock(), timeout_s=60)
    address = ListenAddress("127.0.0.1", _free_port())
    server = HealthServer(address, health)
    server.start()
    yield health, address
    server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(address: ListenAddress, path: str) -> int:
    deadline = time.monotonic() + 5
    while True:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "the server never listened"
            time.sleep(0.01)
        finally:
            connection.close()


def test_the_two_paths_differ_while_the_node_is_being_removed(served: tuple[HealthTracker, ListenAddress]):
    health, address = served
    assert get(address, "/healthz") == 503
    health.updated()
    assert (get(address, "/healthz"), get(address, "/livez"), get(address, "/else")) == (200, 200, 404)
    health.node_eligible(False)
    assert (get(address, "/healthz"), get(address, "/livez")) == (503, 200)
