"""The source against the real API server and etcd: it ends up in step with them, whatever happens to either."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.clock import SystemClock
from kbpf.model.events import Kind
from kbpf.source.api.access import Access
from tests.cluster.api import Api, Refused, Tree
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.objects import endpoint_slice, node, service, service_key, slice_key
from tests.logs import capture_logs
from tests.mirror import Held, Mirror, eventually

pytestmark = [pytest.mark.root, pytest.mark.cluster]

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
HEADLESS = "service.kubernetes.io/headless"


@pytest.fixture(scope="module", autouse=True)
def _nodes(control_plane: ControlPlane) -> None:
    control_plane.api.put([node("n1", "192.168.60.11"), node("n2", "192.168.60.12")])


@pytest.fixture
def relay(control_plane: ControlPlane) -> Iterator[Relay]:
    """The wire between the source and the API server."""
    wire = Relay(None, control_plane.port)
    yield wire
    wire.stop()


@pytest.fixture
def mirror(control_plane: ControlPlane, relay: Relay) -> Iterator[Mirror]:
    seen = mirror_of(control_plane, relay.port).start()
    seen.expect_in_step(timeout_s=30)
    yield seen
    seen.stop()


def mirror_of(control_plane: ControlPlane, port: int | None = None) -> Mirror:
    return Mirror(Access(control_plane.kubeconfig(port), "", SystemClock()), lambda: there(control_plane))


def there(control_plane: ControlPlane) -> Held:
    """What a service proxy on n1 must know of."""
    held: Held = {kind.value: {} for kind in Kind}
    for kind, of_kind in held.items():
        for tree in control_plane.api.list_of(kind):
            metadata = tree["metadata"]
            labels = metadata.get("labels", {})
            is_foreign = PROXY_NAME in labels if kind == "Service" else HEADLESS in labels
            is_headless = tree["spec"].get("clusterIP") == "None" if kind == "Service" else False
            is_other_node = kind == "Node" and metadata["name"] != "n1"
            if not (is_foreign or is_headless or is_other_node):
                name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
                of_kind[name] = metadata["resourceVersion"]
    return held


def test_objects_come_change_and_go(control_plane: ControlPlane, mirror: Mirror) -> None:
    api = control_plane.api
    api.put([service("web"), endpoint_slice("web", "10.42.1.10")])
    mirror.expect_in_step()
    api.put([endpoint_slice("web", "10.42.1.10", "10.42.1.11")])
    mirror.expect_in_step()
    api.delete([slice_key("web"), service_key("web")])
    mirror.expect_in_step()
    assert "shop/web" not in mirror.held["Service"]


def test_what_the_selectors_exclude_never_arrives_and_a_label_is_an_arrival_or_a_leave(
    control_plane: ControlPlane, mirror: Mirror
) -> None:
    api = control_plane.api
    foreign = {PROXY_NAME: "other"}
    api.put([service("handed"), service("headless", clusterIP="None"), service("foreign", labels=foreign)])
    api.put([endpoint_slice("headless", "10.42.1.10", labels={HEADLESS: ""})])
    mirror.expect_in_step()
    assert {"shop/headless", "shop/foreign"}.isdisjoint(mirror.held["Service"])
    for labels, is_there in ((foreign, False), ({}, True)):
        api.request("PUT", "/api/v1/namespaces/shop/services/handed", labelled(api, labels))
        mirror.expect_in_step()
        assert ("shop/handed" in mirror.held["Service"]) is is_there


def labelled(api: Api, labels: dict[str, str]) -> Tree:
    (tree,) = [each for each in api.list_of("Service") if each["metadata"]["name"] == "handed"]
    return tree | {"metadata": tree["metadata"] | {"labels": labels}}


def test_an_api_server_that_crashes_under_churn_and_starts_again_is_caught_up_with(
    control_plane: ControlPlane, mirror: Mirror
) -> None:
    churn = Churn(control_plane)
    try:
        for _ in range(2):
            time.sleep(0.5)
            control_plane.kill_api_server()
            time.sleep(1)
            control_plane.start_api_server()
    finally:
        churn.stop()
    mirror.expect_in_step(timeout_s=60)


def test_deletions_while_the_wire_was_cut_and_etcd_compacted_are_found(
    control_plane: ControlPlane, mirror: Mirror, relay: Relay
) -> None:
    api = control_plane.api
    names = [f"lost{number}" for number in range(20)]
    api.put([service(name) for name in names])
    mirror.expect_in_step()
    relay.cut()
    api.delete([service_key(name) for name in names[:10]])
    control_plane.kill_api_server()
    control_plane.compact()
    control_plane.start_api_server()  # with a watch cache that begins after what we have seen
    api.put([service("found")])
    before = len(mirror.events)
    relay.mend()
    mirror.expect_in_step(timeout_s=60)
    assert len(mirror.events) == before + 11
    api.delete([service_key(name) for name in [*names[10:], "found"]])


def test_a_cut_wire_with_nothing_missed_brings_nothing_again(
    control_plane: ControlPlane, mirror: Mirror, relay: Relay
) -> None:
    before = len(mirror.events)
    for _ in range(3):
        relay.cut()
        time.sleep(0.3)
        relay.mend()
    control_plane.api.put([service("after")])
    mirror.expect_in_step()
    assert len(mirror.events) == before + 1
    control_plane.api.delete([service_key("after")])


def test_an_api_server_that_is_away_at_the_start_is_waited_for(control_plane: ControlPlane) -> None:
    wire = Relay(None, control_plane.port)
    wire.cut()
    late = mirror_of(control_plane, wire.port).start()
    time.sleep(1)
    assert late.synced == []
    wire.mend()
    late.expect_in_step(timeout_s=30)
    late.stop()
    wire.stop()


@pytest.mark.parametrize(
    ("break_", "words"),
    [
        ("token", r"https://127\.0\.0\.1:\d+: 401: Unauthorized \(are the credentials still valid\?\); asking again"),
        ("authority", r"https://127\.0\.0\.1:\d+: TLS: self-signed certificate; asking again"),
        ("port", r"https://127\.0\.0\.1:\d+: Connection refused; asking again"),
        ("path", r"/nowhere: 404: .*no services here: is this the URL of an API server\?\); asking again"),
        ("scheme", r"http://127\.0\.0\.1:\d+: 400: .*HTTP request to an HTTPS server.*; asking again"),
    ],
)
def test_what_keeps_it_from_the_api_server_is_one_line(
    control_plane: ControlPlane, tmp_path: Path, break_: str, words: str
) -> None:
    path = control_plane.kubeconfig()
    text = path.read_text()
    url = f"https://127.0.0.1:{control_plane.port}"
    broken = {
        "token": text.replace(control_plane.token, "wrong"),
        "authority": re.sub(r'"certificate-authority": "[^"]*"', '"insecure-skip-tls-verify": false', text),
        "port": text.replace(url, "https://127.0.0.1:1"),
        "path": text.replace(url, f"{url}/nowhere"),
        "scheme": text.replace(url, url.replace("https", "http")),
    }[break_]
    path = tmp_path / "kubeconfig"
    path.write_text(broken)
    assert any(re.fullmatch(f"services: .*{words}", line) for line in told_with(path)), told_with(path)


def test_what_rbac_forbids_is_one_line_that_names_it(tmp_path: Path) -> None:
    guarded = ControlPlane(tmp_path, authorization="RBAC")
    try:
        lines = told_with(guarded.kubeconfig(token=guarded.stranger_token))
    finally:
        guarded.stop()
    for resource in ("services", "endpointslices", "nodes"):
        words = rf'{resource}: .*: 403: .* is forbidden: User "stranger" cannot (list|watch) resource "{resource}"'
        assert any(re.match(words, line) for line in lines), lines


def told_with(kubeconfig: Path) -> list[str]:
    mirror = Mirror(Access(kubeconfig, "", SystemClock()), dict)
    with capture_logs() as logs:
        mirror.start()
        eventually(lambda: len(logs) >= 3)
        time.sleep(1)
    mirror.stop()
    assert len(logs) == 3
    return [str(entry["event"]) for entry in logs]


class Churn:
    """Somebody who creates, changes and deletes Services and slices without a pause, and bears every refusal."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.api = control_plane.api
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name="churn")
        self.thread.start()

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            name = f"churn{number % 30}"
            number += 1
            try:
                if number % 3:
                    self.api.put([service(name), endpoint_slice(name, f"10.42.1.{1 + number % 250}")])
                else:
                    self.api.delete([slice_key(name), service_key(name)])
            except (OSError, Refused):
                self.stopped.wait(0.05)

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()
