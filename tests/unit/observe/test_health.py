"""When /healthz and /livez say yes, family by family, and in which words."""

import json

import pytest

from kbpf.clock import FakeClock
from kbpf.model.address import Family
from kbpf.observe.health import HealthTracker
from kbpf.observe.healthz import health_answer

IPV4, IPV6 = Family


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def health(clock: FakeClock) -> HealthTracker:
    return HealthTracker(clock, timeout_s=60)


def ask(health: HealthTracker, path: str = "/healthz") -> tuple[int, dict]:
    answer = health_answer(health, lambda path, status: None)(path)
    return answer.status.value, json.loads(answer.body)


def test_nothing_is_healthy_before_the_first_complete_sync_but_the_process_is_alive(health: HealthTracker):
    status, body = ask(health)
    assert (status, body["healthy"], body["status"], body["lastUpdated"]) == (503, False, {}, "0001-01-01T00:00:00Z")
    assert ask(health, "/livez")[0] == 200


def test_a_first_sync_that_does_not_come_about_ends_the_life(health: HealthTracker, clock: FakeClock):
    health.queued()
    clock.advance(60)
    assert ask(health, "/livez")[0] == 503


def test_a_finished_sync_makes_it_healthy(health: HealthTracker):
    health.updated(Family)
    assert ask(health)[0] == 200


def test_a_change_that_waits_too_long_makes_it_unhealthy(health: HealthTracker, clock: FakeClock):
    health.updated(Family)
    health.queued()
    clock.advance(59)
    assert ask(health)[0] == 200
    clock.advance(1)
    assert ask(health)[0] == ask(health, "/livez")[0] == 503


def test_later_changes_do_not_hide_the_oldest_one(health: HealthTracker, clock: FakeClock):
    health.updated(Family)
    health.queued()
    clock.advance(40)
    health.queued()
    clock.advance(20)
    assert ask(health)[0] == 503


def test_a_quiet_cluster_stays_healthy(health: HealthTracker, clock: FakeClock):
    health.updated(Family)
    clock.advance(86400)
    assert ask(health)[0] == 200


def test_one_family_that_is_stuck_is_told_from_the_other(health: HealthTracker, clock: FakeClock):
    health.updated(Family)
    health.queued()
    health.updated([IPV4])
    clock.advance(60)
    status, body = ask(health)
    assert status == 503
    assert {family: entry["healthy"] for family, entry in body["status"].items()} == {"IPv4": True, "IPv6": False}


def test_a_family_that_this_host_does_not_have_does_not_count(health: HealthTracker, clock: FakeClock):
    health.queued()
    health.updated([IPV4])
    clock.advance(60)
    status, body = ask(health)
    assert (status, list(body["status"])) == (200, ["IPv4"])


def test_the_body_is_kube_proxy_s(health: HealthTracker, clock: FakeClock):
    health.updated(Family)
    clock.advance(100.25)
    answer = health_answer(health, lambda path, status: None)("/healthz")
    assert answer.body == (
        b'{"lastUpdated":"1970-01-01T00:18:20.250000Z","currentTime":"1970-01-01T00:18:20.250000Z",'
        b'"nodeEligible":true,"healthy":true,"status":{'
        b'"IPv4":{"lastUpdated":"1970-01-01T00:16:40Z","healthy":true},'
        b'"IPv6":{"lastUpdated":"1970-01-01T00:16:40Z","healthy":true}}}'
    )
    assert answer.content_type == "application/json"


def test_last_updated_is_the_newest_sync_in_a_bad_answer(health: HealthTracker, clock: FakeClock):
    health.updated([IPV6])
    clock.advance(5)
    health.queued()
    health.updated([IPV4])
    clock.advance(60)
    assert ask(health)[1]["lastUpdated"] == "1970-01-01T00:16:45Z"


def test_a_node_that_is_being_removed_is_alive_and_healthy_and_not_for_balancers(health: HealthTracker):
    health.updated(Family)
    health.node_eligible(False)
    status, body = ask(health)
    assert (status, body["nodeEligible"], body["healthy"]) == (503, False, True)
    status, body = ask(health, "/livez")
    assert status == 200
    assert "nodeEligible" not in body


def test_answers_are_counted_and_other_paths_are_not_found(health: HealthTracker):
    counted = []
    answer = health_answer(health, lambda path, status: counted.append((path, status.value)))
    assert [answer(path).status.value for path in ("/healthz", "/livez", "/else", "/")] == [503, 200, 404, 404]
    assert counted == [("/healthz", 503), ("/livez", 200)]
