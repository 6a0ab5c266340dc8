"""`kbpf status`, `explain`, `verify` and `top` beside a real daemon and after it, with both datapaths."""

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kbpf.datapath.ebpf.ids import backend_address
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.demo.proxy import Proxy
from kbpf.model.address import Address, packed
from kbpf.model.objects import DATAPATH_ANNOTATION
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.asking import asked, deciding, status, verified
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

PODS = ("10.42.1.10", "10.42.1.11")
CALLER = "pod 10.42.1.100"
BACKENDS = {f"{pod}:8080" for pod in PODS}
DATAPATHS = pytest.mark.parametrize("datapath", ["ebpf", "iptables"])


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(
        tmp_path / "manifests",
        service("web", port(80, "http", node_port=30080), type="NodePort"),
        endpoint_slice("web", *PODS, ports=[slice_port(8080, "http")]),
    )


@contextmanager
def maps_of(world: World) -> Iterator[Maps]:
    opened = Maps.open(Pins(world.node.bpffs))
    try:
        yield opened
    finally:
        opened.close()


def rules(world: World, *arguments: str) -> str:
    inside = ["nsenter", f"--net={world.node.namespace.path}", *arguments]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def stopped(world: World, manifests: Path) -> Callable[[str], Proxy]:
    """A daemon with this datapath that has synced and is gone: nobody repairs what the test breaks."""

    def run(datapath: str) -> Proxy:
        proxy = world.proxy(manifests, f"--datapath={datapath}", "--fallback=none")
        assert proxy.terminate() == 0
        return proxy

    return run


# -- status ------------------------------------------------------------------------------------------------------------


@DATAPATHS
def test_status_tells_services_with_and_without_the_daemon(world: World, manifests: Path, datapath: str) -> None:
    proxy = world.proxy(manifests, f"--datapath={datapath}", "--fallback=none")
    before = status(world)
    assert (before["datapath"], before["reason"]) == (datapath, "asked for")
    assert before["daemon"]["answers"]
    assert before["daemon"]["syncAgeSeconds"] < 60
    [web] = before["services"]
    assert (web["name"], set(web["backends"])) == ("shop/web:http", BACKENDS)
    assert [(each["kind"], each["address"], each["port"]) for each in web["frontends"]] == [
        ("ClusterIP", "10.96.0.10", 80),
        ("NodePort", None, 30080),
    ]
    assert {each["carrier"] for each in web["frontends"]} == {datapath}
    assert proxy.terminate() == 0
    after = status(world)
    assert not after["daemon"]["answers"]
    assert (after["datapath"], after["services"], after["deferred"]) == (datapath, before["services"], {})


def test_status_for_people_names_datapath_and_backends(world: World, stopped: Callable[[str], Proxy]) -> None:
    stopped("ebpf")
    done = asked(world, "status")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("datapath: ebpf\ndaemon: does not answer")
    assert "connect4" in done.stdout
    for word in ("shop/web:http", "ClusterIP 10.96.0.10:80/tcp", *BACKENDS):
        assert word in done.stdout


def test_status_of_a_node_without_kbpf_says_so(world: World) -> None:
    found = status(world)
    assert (found["datapath"], found["services"], found["daemon"]["answers"]) == ("none", [], False)


def test_frontends_that_iptables_treats_are_counted_by_reason_and_named(world: World, tmp_path: Path) -> None:
    usual = [
        thing
        for number in range(1, 120)
        for thing in (
            service(
                f"s{number}",
                port(80, node_port=30000 + number),
                cluster_ips=[f"10.96.1.{number}"],
                type="LoadBalancer",
                ingress=[f"203.0.113.{number}"],
            ),
            endpoint_slice(f"s{number}", *PODS),
        )
    ]
    folder = write_manifests(tmp_path / "large", *usual)
    proxy = world.proxy(folder, "--datapath=ebpf", "--fallback=none")
    found = status(world)
    assert (found["counts"]["frontends"], found["counts"]["deferred"], found["deferred"]) == (3 * 119, 0, {})
    syncs = len(proxy.syncs())
    write_manifests(
        folder,
        *usual,
        service("media", port(9999, protocol="SCTP"), cluster_ips=["10.96.2.1"]),
        endpoint_slice("media", *PODS, ports=[slice_port(9999, protocol="SCTP")]),
        service(
            "guarded",
            port(80),
            cluster_ips=["10.96.2.2"],
            type="LoadBalancer",
            ingress=["203.0.113.200"],
            load_balancer_source_ranges=["198.51.100.0/24"],
        ),
        endpoint_slice("guarded", *PODS),
    )
    proxy.wait_for_sync(syncs)
    eventually(lambda: status(world)["deferred"] == {"sctp": 1, "source-ranges": 1})
    services = {each["name"]: each for each in status(world)["services"]}
    [media] = services["shop/media"]["frontends"]
    assert (media["carrier"], media["deferred"]) == ("iptables", "sctp")
    guarded = {each["kind"]: (each["carrier"], each["deferred"]) for each in services["shop/guarded"]["frontends"]}
    assert guarded == {"ClusterIP": ("ebpf", ""), "LoadBalancerIP": ("ebpf and iptables", "source-ranges")}


def test_a_service_that_asks_for_rules_gets_them_and_loses_no_call(world: World, manifests: Path) -> None:
    world.serve(*BACKENDS)
    proxy = world.proxy(manifests, "--datapath=ebpf", "--fallback=none")
    stream = world.stream(CALLER, "10.96.0.10:80")
    stream.wait_for(50)
    web = {"type": "NodePort", "annotations": {DATAPATH_ANNOTATION: "iptables"}}
    slices = endpoint_slice("web", *PODS, ports=[slice_port(8080, "http")])
    write_manifests(manifests, service("web", port(80, "http", node_port=30080), **web), slices)
    eventually(lambda: status(world)["deferred"] == {"opt-out": 2})
    [held] = status(world)["services"]
    assert {each["carrier"] for each in held["frontends"]} == {"iptables"}
    assert verified(world, manifests)[0] == 0
    stream.wait_for(50)
    syncs = len(proxy.syncs())
    write_manifests(manifests, service("web", port(80, "http", node_port=30080), type="NodePort"), slices)
    proxy.wait_for_sync(syncs)
    eventually(lambda: status(world)["deferred"] == {})
    stream.wait_for(50)
    report = stream.report()
    assert (report.failed, report.failures) == (0, [])


@pytest.mark.parametrize(
    "command",
    [("status",), ("top",), ("verify",), ("explain", "10.42.1.9", "10.96.0.10:80")],
    ids=lambda words: words[0],
)
def test_without_the_right_to_read_it_says_so(manifests: Path, command: tuple[str, ...]) -> None:
    """Instead of showing a node on which there is nothing."""
    source = [] if command[0] in ("status", "top") else [f"--manifests={manifests}"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "PYTHONDONTWRITEBYTECODE=1"]
    done = subprocess.run([*nobody, sys.executable, "-m", "kbpf", *command, *source], capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "kbpf: reading the kernel's maps and rules needs root; try sudo",
    )


# -- verify ------------------------------------------------------------------------------------------------------------


@DATAPATHS
def test_what_a_daemon_wrote_has_no_difference(world: World, manifests: Path, datapath: str) -> None:
    world.proxy(manifests, f"--datapath={datapath}", "--fallback=none")
    status_code, lines = verified(world, manifests)
    assert (status_code, lines) == (0, [f"no difference: 1 services, 2 frontends via {datapath}"])


def test_a_corrupted_row_is_named_with_its_service(
    world: World, manifests: Path, stopped: Callable[[str], Proxy]
) -> None:
    stopped("ebpf")
    with maps_of(world) as maps:
        key, row = next((key, row) for key, row in maps.backends.entries().items())
        maps.backends.update({key: row._replace(port=9)})
        slot, value = next((slot, value) for slot, value in maps.slots.entries().items() if value.backend_id != key.id)
        maps.slots.update({slot: value._replace(backend=backend_address(packed(Address("10.42.1.1")), 9, 6))})
    status_code, lines = verified(world, manifests)
    assert status_code == 1
    head = "shop/web:http (IPv4): cluster list: "
    assert any(line.startswith(f"{head}has beyond 10.42.1.1") for line in lines), lines
    assert any(line.startswith(f"{head}lacks 10.42.1.1") for line in lines), lines
    assert any(line.startswith(f"{head}backends id={key.id}: port=9 instead of ") for line in lines), lines


def test_a_frontend_that_is_gone_and_one_of_nobody_are_named(
    world: World, manifests: Path, stopped: Callable[[str], Proxy]
) -> None:
    stopped("ebpf")
    with maps_of(world) as maps:
        key, row = next((key, row) for key, row in maps.frontends.entries().items() if key.port == 80)
        maps.frontends.delete([key])
        stranger = key._replace(port=81)
        maps.frontends.update({stranger: row._replace(port=81)})
    status_code, lines = verified(world, manifests)
    assert status_code == 1
    assert lines == [
        "shop/web:http (IPv4): lacks frontends address=10.96.0.10 port=80 protocol=TCP",
        next(line for line in lines if line.startswith("of no Service: frontends address=10.96.0.10 port=81")),
    ]


def test_a_program_that_is_not_on_its_hook_is_named(
    world: World, manifests: Path, stopped: Callable[[str], Proxy]
) -> None:
    stopped("ebpf")
    Pins(world.node.bpffs).link("sendmsg4").unlink()
    status_code, lines = verified(world, manifests)
    assert (status_code, lines) == (1, [f"programs: sendmsg4 is not attached to {world.node.cgroup}"])


def test_a_rule_that_is_gone_and_a_chain_of_nobody_are_named(
    world: World, manifests: Path, stopped: Callable[[str], Proxy]
) -> None:
    stopped("iptables")
    saved = rules(world, "iptables-nft-save", "-t", "nat")
    rule = next(line for line in saved.splitlines() if "--to-destination 10.42.1.10:8080" in line)
    rules(world, "sh", "-c", f"iptables-nft -t nat -D {rule.removeprefix('-A ')}")
    rules(world, "iptables-nft", "-t", "nat", "-N", "KUBE-SVC-AAAAAAAAAAAAAAAA")
    status_code, lines = verified(world, manifests)
    assert status_code == 1
    [lacks] = [line for line in lines if ": lacks: " in line]
    assert "--to-destination 10.42.1.10:8080" in lacks
    assert "iptables IPv4 nat KUBE-SVC-AAAAAAAAAAAAAAAA: chain of no Service port" in lines


def test_a_change_that_nobody_wrote_yet_is_a_difference(
    world: World, manifests: Path, stopped: Callable[[str], Proxy]
) -> None:
    stopped("ebpf")
    more = service("web", port(80, "http", node_port=30080), type="NodePort")
    write_manifests(manifests, more, endpoint_slice("web", *PODS, "10.42.1.12", ports=[slice_port(8080, "http")]))
    status_code, lines = verified(world, manifests)
    assert status_code == 1
    assert "shop/web:http (IPv4): cluster list: lacks 10.42.1.12:8080" in lines


# -- explain -----------------------------------------------------------------------------------------------------------


@DATAPATHS
def test_a_flow_is_explained_from_both_sides(
    world: World, manifests: Path, stopped: Callable[[str], Proxy], datapath: str
) -> None:
    stopped(datapath)
    done = asked(world, "explain", "10.42.1.100", "10.96.0.10:80", *deciding(manifests))
    assert done.returncode == 0, done.stderr
    assert "10.96.0.10:80 is a ClusterIP of shop/web:http" in done.stdout
    assert done.stdout.count("=> to one of 10.42.1.10:8080, 10.42.1.11:8080") == 2
    assert done.stdout.endswith("the two agree\n")
    step = "socket hook: chosen" if datapath == "ebpf" else "rule: nat -A KUBE-SERVICES"
    assert step in done.stdout


def test_explain_says_when_kernel_and_source_differ(
    world: World, manifests: Path, stopped: Callable[[str], Proxy]
) -> None:
    stopped("ebpf")
    with maps_of(world) as maps:
        maps.frontends.delete([key for key in maps.frontends.entries() if key.port == 80])
    done = asked(world, "explain", "10.42.1.100", "10.96.0.10:80", *deciding(manifests))
    assert done.returncode == 1
    assert done.stdout.endswith("THEY DIFFER: wanted is forward, the kernel's answer is pass\n")


def test_without_a_source_explain_asks_the_kernel_alone(world: World, stopped: Callable[[str], Proxy]) -> None:
    stopped("ebpf")
    done = asked(world, "explain", "host", "192.168.60.11:30080", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["wanted"]["action"], found["kernel"]["action"]) == (0, None, "forward")
    assert set(found["kernel"]["backends"]) == BACKENDS


# -- top ---------------------------------------------------------------------------------------------------------------


@DATAPATHS
def test_connections_are_counted_by_service_and_backend(
    world: World, stopped: Callable[[str], Proxy], datapath: str
) -> None:
    world.serve(*BACKENDS)
    stopped(datapath)
    world.send(CALLER, "10.96.0.10:80", count=3)
    node = world.node
    roots = [f"--cgroup-root={node.cgroup}", f"--bpffs-root={node.bpffs}"]
    command = [sys.executable, "-m", "kbpf", "top", *roots, "-n", "40", "--interval", "500ms", "-o", "json"]
    watching = subprocess.Popen(
        ["nsenter", f"--net={node.namespace.path}", *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["rates"] == []
        answers = world.send(CALLER, "10.96.0.10:80", count=40)
        assert backends(answers) == BACKENDS
        seen: dict[tuple[str, str], int] = {}
        while sum(seen.values()) < len(answers):
            for rate in json.loads(watching.stdout.readline())["rates"]:
                key = rate["service"], rate["backend"]
                seen[key] = seen.get(key, 0) + rate["connections"]
    finally:
        watching.kill()
        watching.communicate()
    wanted = {("shop/web:http", backend): sum(each.backend == backend for each in answers) for backend in BACKENDS}
    assert seen == wanted


def test_connections_are_a_metric_where_it_is_asked_for(world: World, manifests: Path) -> None:
    world.serve(*BACKENDS)
    world.proxy(manifests, "--datapath=ebpf", "--fallback=none", "--connection-series=10")
    world.send(CALLER, "10.96.0.10:80", count=40)
    with world.node.namespace.entered():
        connection = http.client.HTTPConnection("127.0.0.1", 10249, timeout=5)
        connection.connect()
    connection.request("GET", "/metrics")
    found = {
        (sample.labels["service"], sample.labels["backend"]): sample.value
        for family in text_string_to_metric_families(connection.getresponse().read().decode())
        if family.name == "kbpf_connections"
        for sample in family.samples
    }
    connection.close()
    assert found.keys() == {("shop/web:http", backend) for backend in BACKENDS}
    assert sum(found.values()) == 40
