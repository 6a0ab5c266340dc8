"""The source against an API server that fails in every way, over real sockets: it always ends up in step with it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.clock import SystemClock
from kbpf.model.events import Kind
from kbpf.source.api import backoff, reflector, request
from kbpf.source.api.access import Access
from kbpf.source.api.http import HttpTransport
from kbpf.source.api.source import ApiSource
from tests.api_answers import node_tree, slice_tree, tree
from tests.faulty_api_server import FaultyApiServer
from tests.logs import capture_logs
from tests.mirror import Held, Mirror, eventually
from tests.unit.source.api.test_access import kubeconfig

KINDS = {"services": "Service", "endpointslices": "EndpointSlice", "nodes": "Node"}


def mirror_of(api: FaultyApiServer, path: Path | None = None) -> Mirror:
    def there() -> Held:
        with api.changed:
            return {
                KINDS[resource]: {
                    "/".join(filter(None, key)): tree["metadata"]["resourceVersion"] for key, tree in trees.items()
                }
                for resource, trees in api.objects.items()
            }

    return Mirror(Access(path, "" if path else api.url, SystemClock()), there, answer_within_s=0.5)


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules with a tenth of the patience."""
    monkeypatch.setattr(request, "LIST_SILENCE_S", 0.5)
    monkeypatch.setattr(reflector, "WATCH_MARGIN_S", 0.2)
    monkeypatch.setattr(request, "WATCH_MARGIN_S", 0.2)
    monkeypatch.setattr(reflector, "SHORTEST_WATCH_S", 0.05)
    monkeypatch.setattr(backoff, "FIRST_S", 0.02)
    monkeypatch.setattr(backoff, "LONGEST_S", 0.2)


@pytest.fixture
def api() -> Iterator[FaultyApiServer]:
    server = FaultyApiServer()
    server.put("nodes", node_tree("n1", "192.168.60.11"))
    for name in ("web", "dns", "api"):
        server.put("services", tree(name))
        server.put("endpointslices", slice_tree(f"{name}-1", "10.42.1.5", service=name))
    yield server
    server.close()


@pytest.fixture
def mirror(api: FaultyApiServer) -> Iterator[Mirror]:
    mirror = mirror_of(api).start()
    mirror.expect_in_step()
    yield mirror
    mirror.stop()
    assert len(mirror.synced) == 3


def shorten_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "WATCH_TIMEOUT_S", (1, 1))


def test_what_changes_arrives_without_a_new_list(api, mirror):
    api.put("services", tree("new"))
    api.delete("services", "web")
    api.put("endpointslices", slice_tree("dns-1", "10.42.1.6", service="dns"))
    mirror.expect_in_step()
    assert len(api.asked("services")) == 1


@pytest.mark.parametrize("streams", [True, False])
def test_deletions_during_a_cut_are_found(api, mirror, streams):
    api.knows_streaming = streams
    api.go_away()
    api.delete("services", "web")
    api.put("services", tree("new"))
    api.compact()
    api.resume()
    mirror.expect_in_step()


def test_a_cut_without_anything_missed_delivers_nothing_again(api, mirror):
    before = len(mirror.events)
    api.cut()
    api.put("services", tree("new"))
    mirror.expect_in_step()
    assert len(mirror.events) == before + 1


def test_an_outage_with_deletions_is_caught_up_with(api, mirror):
    api.go_away()
    api.delete("services", "web")
    api.delete("endpointslices", "web-1")
    time.sleep(1)
    assert "shop/web" in mirror.held["Service"]
    api.resume()
    mirror.expect_in_step()


def test_410_in_the_middle_of_a_watch(api, mirror):
    api.send_raw("services", b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}')
    api.delete("services", "web")
    api.put("services", tree("new"))
    mirror.expect_in_step()


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429, 403, 404])
def test_refusals_are_waited_out(api, mirror, code):
    api.refuse(code, times=6)
    api.cut()
    api.delete("services", "web")
    mirror.expect_in_step()


def test_retry_after_is_heeded(api, mirror):
    api.refuse(429, times=3, Retry_After="1")
    started = time.monotonic()
    api.cut()
    api.put("services", tree("new"))
    mirror.expect_in_step()
    assert time.monotonic() - started >= 1


def test_a_silent_connection_is_given_up_and_what_was_missed_is_found(api, monkeypatch):
    shorten_watches(monkeypatch)
    mirror = mirror_of(api).start()
    mirror.expect_in_step()
    api.mute(True)
    api.delete("services", "web")
    time.sleep(0.5)
    assert "shop/web" in mirror.held["Service"]
    time.sleep(1.5)
    api.mute(False)
    mirror.expect_in_step()
    mirror.stop()


def test_watches_that_end_in_time_lose_nothing(api, monkeypatch):
    shorten_watches(monkeypatch)
    mirror = mirror_of(api).start()
    for number in range(30):
        api.put("services", tree(f"s{number}"))
        if number % 3 == 0:
            api.delete("services", f"s{number}")
        time.sleep(0.1)
    mirror.expect_in_step()
    mirror.stop()
    assert len(api.asked("services")) >= 3


@pytest.mark.parametrize("streams", [True, False])
def test_half_a_list_and_then_a_pause_is_no_list(api, streams):
    api.knows_streaming = streams
    api.pause_after = 1
    mirror = mirror_of(api).start()
    time.sleep(1)
    assert Kind.SERVICE not in mirror.synced
    assert Kind.ENDPOINT_SLICE not in mirror.synced
    api.pause_after = None
    mirror.expect_in_step()
    mirror.stop()


def test_versions_that_start_anew(api, mirror):
    api.go_away()
    api.start_versions_anew(5)
    api.delete("services", "web")
    api.resume()
    mirror.expect_in_step()
    api.put("services", tree("after"))
    mirror.expect_in_step()


def test_garbage_lines_cost_the_connection_only(api, mirror):
    for garbage in (b"\x00\x01", b"<html>", b'{"type":', b"[]", b'{"type":"ADDED"}', b"null"):
        api.send_raw("services", garbage)
        api.put("services", tree("after-garbage"))
        mirror.expect_in_step()


def test_an_object_that_cannot_be_read_harms_no_other(api):
    api.put("endpointslices", slice_tree("bad", service="dns") | {"endpoints": "none"})
    api.put("endpointslices", slice_tree("empty", service="dns") | {"endpoints": None, "ports": None})
    mirror = mirror_of(api)
    with capture_logs() as logs:
        mirror.start()
        eventually(lambda: len(mirror.synced) == 3)
    assert set(mirror.held["EndpointSlice"]) == {"shop/web-1", "shop/dns-1", "shop/api-1", "shop/empty"}
    assert [entry["event"] for entry in logs] == [
        "EndpointSlice shop/bad: endpoints: 'none': expected array, got str, not applied"
    ]
    mirror.stop()


def test_bookmarks_alone_move_the_place_where_the_next_watch_begins(api, mirror):
    for _ in range(5):
        api.put("nodes", node_tree("n1", "192.168.60.11"))  # versions move on elsewhere
    api.send_bookmark("services")
    eventually(lambda: not api.raw["services"])
    api.compact()
    before = len(mirror.events)
    lists = len([query for query in api.asked("services") if query.get("sendInitialEvents")])
    api.cut()
    api.put("services", tree("new"))
    mirror.expect_in_step()
    assert len([query for query in api.asked("services") if query.get("sendInitialEvents")]) == lists
    assert before < len(mirror.events)


def test_an_api_server_that_is_away_at_the_start_is_waited_for():
    api = FaultyApiServer()
    api.go_away()
    mirror = mirror_of(api)
    with capture_logs() as logs:
        mirror.start()
        time.sleep(0.5)
        assert mirror.synced == []
        api.put("nodes", node_tree("n1", "192.168.60.11"))
        api.resume()
        mirror.expect_in_step()
    mirror.stop()
    api.close()
    words = [entry["event"] for entry in logs if "nodes" in entry["event"]]
    assert words[0] == f"nodes: {api.url}: Connection refused; asking again"
    assert len(words) <= 2


def test_a_token_that_was_rotated_is_read_again_after_the_refusal(api, tmp_path, monkeypatch):
    shorten_watches(monkeypatch)
    (tmp_path / "token").write_text("T1\n")
    api.token = "T1"  # noqa: S105
    mirror = mirror_of(api, kubeconfig(tmp_path, {"tokenFile": "token"}, server=api.url)).start()
    mirror.expect_in_step()
    (tmp_path / "token").write_text("T2\n")
    api.token = "T2"  # noqa: S105
    api.cut()
    api.put("services", tree("new"))
    mirror.expect_in_step()
    mirror.stop()


def test_a_refusal_is_one_line_that_names_what_was_refused(api):
    api.refuse(403, times=50)
    mirror = mirror_of(api)
    with capture_logs() as logs:
        mirror.start()
        eventually(lambda: len(api.requests) > 10)
    mirror.stop()
    words = {entry["event"] for entry in logs}
    assert words == {
        f"{resource}: {api.url}: 403: something happened; asking again"
        for resource in ("services", "endpointslices", "nodes")
    }
    assert len(logs) == 3


def test_a_url_that_leads_elsewhere_is_said_to(api):
    access = Access(None, f"{api.url}/elsewhere", SystemClock())
    source = ApiSource(HttpTransport(access), api.url, "n1", SystemClock())
    with capture_logs() as logs:
        source.start(lambda event: None)
        eventually(lambda: len(logs) >= 3)
    source.stop()
    assert any("no services here: is this the URL of an API server?" in entry["event"] for entry in logs)


def test_many_reconnections_leave_no_threads_and_descriptors_behind(api, mirror):
    def used() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    def reconnect(times: int) -> None:
        for _ in range(times):
            asked = len(api.requests)
            api.cut()
            eventually(lambda: len(api.requests) >= asked + 6)  # noqa: B023
        mirror.expect_in_step()
        time.sleep(0.3)

    reconnect(5)
    before = used()
    reconnect(40)
    threads, descriptors = used()
    assert threads <= before[0] + 3
    assert descriptors <= before[1] + 3


def test_stopping_takes_no_time_and_ends_the_threads(api):
    mirror = mirror_of(api).start()
    mirror.expect_in_step()
    started = time.monotonic()
    mirror.stop()
    assert time.monotonic() - started < 1
    assert not any(thread.is_alive() for thread in mirror.source._threads)
    api.put("services", tree("late"))
    time.sleep(0.1)
    assert "shop/late" not in mirror.held["Service"]
