"""The world that kernel tests stand on, without any proxy in it."""

import subprocess
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.filesystem import ensure_bpffs
from kbpf.demo.cgroups import join
from kbpf.demo.client import Client
from kbpf.demo.exchange import Request
from kbpf.demo.place import Place
from kbpf.demo.remains import remains, remove
from kbpf.errors import CommandFailed
from tests.conftest import RUN
from tests.kernel.traces import traces
from tests.kernel.world import World, backends, eventually

pytestmark = pytest.mark.root

NEAR, NEAR_V6 = "10.42.1.10:8080", "[fd42:1::10]:8080"
FAR, FAR_V6 = "10.42.2.10:8080", "[fd42:2::10]:8080"
CALLER = ("10.42.1.100", "fd42:1::100")


@pytest.fixture
def meshed(world: World) -> World:
    """A caller on n1, and a backend on n1 and on another node, for both protocols and families."""
    world.pod(*CALLER)
    world.pod("10.42.1.10", "fd42:1::10")
    world.pod("10.42.2.10", "fd42:2::10")
    world.serve(*(name + suffix for name in (NEAR, NEAR_V6, FAR, FAR_V6) for suffix in ("", "/udp")))
    return world


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize(("backend", "family"), [(NEAR, 0), (FAR, 0), (NEAR_V6, 1), (FAR_V6, 1)])
@pytest.mark.parametrize(
    ("origin", "sources"),
    [
        ("pod 10.42.1.100", CALLER),
        ("pod 10.42.2.10", ("10.42.2.10", "fd42:2::10")),
        ("host", ("192.168.60.11", "fd60::11")),
        ("outside", ("198.51.100.7", "2001:db8:51::7")),
    ],
)
def test_everybody_reaches_every_pod_and_is_seen_with_its_own_address(
    meshed: World, origin: str, sources: tuple[str, str], backend: str, family: int, protocol: str
) -> None:
    (answer,) = meshed.send(origin, f"{backend}/{protocol}")
    assert (answer.error, answer.backend, answer.source) == (None, backend, sources[family])
    assert answer.peer == backend


@pytest.mark.parametrize("mode", ["connect", "sendto", "one-socket", "mixed"])
@pytest.mark.parametrize("mapped", [False, True])
def test_udp_callers_use_their_sockets_in_every_mode(meshed: World, mode: str, mapped: bool) -> None:
    answers = meshed.send("pod 10.42.1.100", f"{NEAR}/udp", mode=mode, mapped=mapped, count=4)
    ports = {answer.source_port for answer in answers}
    assert backends(answers) == {NEAR}
    assert len(ports) == (1 if mode in ("one-socket", "mixed") else 4)
    assert {answer.peer for answer in answers} == {"[::ffff:10.42.1.10]:8080" if mapped else NEAR}


def test_a_caller_may_choose_its_source(world: World) -> None:
    world.network.add_addresses("192.0.2.9")
    world.serve(NEAR)
    (answer,) = world.send("outside 192.0.2.9", NEAR, source_port=40000)
    assert (answer.source, answer.source_port) == ("192.0.2.9", 40000)


def test_servers_on_the_node_are_reached_from_outside(world: World) -> None:
    world.serve("192.168.60.11:9000", "[fd60::11]:9000")
    assert backends(world.send("outside", "192.168.60.11:9000")) == {"192.168.60.11:9000"}
    assert backends(world.send("outside", "[fd60::11]:9000")) == {"[fd60::11]:9000"}


def test_failures_are_told_by_name(world: World) -> None:
    world.pod("10.42.1.10")
    (refused,) = world.send("host", NEAR)
    assert refused.error == "ECONNREFUSED"
    (lost,) = world.send("host", "203.0.113.1:80/udp", timeout_s=0.05)
    assert lost.error == "timeout"


def test_a_caller_that_cannot_start_is_an_error_and_no_answer(world: World) -> None:
    nowhere = Client(Place("/run/netns/nowhere", world.node.host.cgroup))
    with pytest.raises(
        CommandFailed, match=r"caller: exit status 1: .*No such file or directory: '/run/netns/nowhere'"
    ):
        nowhere.send(Request("10.42.1.10", 8080))


def test_sessions_stay_open_until_their_backend_dies(world: World) -> None:
    server = world.serve(NEAR)
    sessions = world.sessions("pod 10.42.1.100", NEAR, count=3)
    assert [answer.error for answer in sessions.opened] == [None] * 3
    first, second = sessions.ping(), sessions.ping()
    assert backends(first) == {NEAR}
    assert [answer.source_port for answer in first] == [answer.source_port for answer in second]
    server.close()
    assert {answer.error for answer in sessions.ping()} <= {"ECONNRESET", "EPIPE"}


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_session_that_was_cut_off_goes_on_with_the_answers_to_new_questions(world: World, protocol: str) -> None:
    world.serve(f"{NEAR}/{protocol}")
    sessions = world.sessions("pod 10.42.1.100", f"{NEAR}/{protocol}", timeout_s=0.3)
    in_node = ["nsenter", f"--net={world.node.namespace.path}", "iptables", "-t", "filter"]
    subprocess.run([*in_node, "-A", "FORWARD", "-j", "DROP"], check=True)
    assert [answer.error for answer in sessions.ping()] == ["timeout"]
    subprocess.run([*in_node, "-F", "FORWARD"], check=True)
    eventually(lambda: backends(sessions.ping()) == {NEAR})
    assert backends(sessions.ping()) == {NEAR}


def test_a_stream_goes_on_and_counts_its_failures(world: World) -> None:
    server = world.serve(NEAR)
    stream = world.stream("pod 10.42.1.100", NEAR)
    good = stream.wait_for(20)
    assert (good.failures, set(good.backends)) == ([], {NEAR})
    server.close()
    bad = stream.wait_for(20)
    assert bad.attempts >= good.attempts + 20
    assert {failure.error for failure in bad.failures} <= {"ECONNREFUSED", "ECONNRESET"}
    assert len(bad.failures) >= 19


def test_two_worlds_with_the_same_addresses_do_not_meet(world: World, tmp_path: Path) -> None:
    other = World(f"{world.tag}b", tmp_path)
    try:
        other.create()
        world.serve(NEAR)
        other.pod("10.42.1.10")
        assert backends(world.send("host", NEAR)) == {NEAR}
        assert backends(other.send("host", NEAR)) == {None}
    finally:
        other.close()
    assert backends(world.send("host", NEAR)) == {NEAR}


def test_removing_a_world_ends_its_processes_and_leaves_nothing(tmp_path: Path) -> None:
    tag = f"{RUN}gone"
    world = World(tag, tmp_path)
    try:
        world.create()
        world.pod("10.42.1.10")
        ensure_bpffs(world.node.bpffs)
        sleeper = subprocess.Popen(["sleep", "60"])
        join(world.node.cgroup / "pods", sleeper.pid)
    finally:
        remove(tag)
    assert sleeper.wait(5) != 0
    assert remains(tag) == []
    remove(tag)


def test_chains_and_pins_that_a_proxy_left_are_found(world: World) -> None:
    assert traces(world.node) == []
    ensure_bpffs(world.node.bpffs)
    (world.node.bpffs / "v1").mkdir()
    subprocess.run(["nsenter", f"--net={world.node.namespace.path}", "iptables", "-N", "KUBE-SERVICES"], check=True)
    assert traces(world.node) == [
        "iptables-nft-save: :KUBE-SERVICES - [0:0]",
        f"pin {world.node.bpffs}/v1",
    ]
    subprocess.run(["nsenter", f"--net={world.node.namespace.path}", "iptables", "-X", "KUBE-SERVICES"], check=True)
    (world.node.bpffs / "v1").rmdir()
