"""Others at work on the node of a running kbpf: firewalls that reload, agents that hold the lock. It repairs."""

import fcntl
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from kbpf.demo.proxy import Proxy
from tests.builders import endpoint_slice, port, service
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CALLER = ("10.42.1.100", "fd42:1::100")
WEB, WEB6 = "10.96.0.10:80", "[fd96::10]:80"
POD, POD6 = "10.42.1.10", "fd42:1::10"
OPTIONS = ("--datapath=iptables", "--fallback=none", "--iptables-sync-period=1s", "--iptables-min-sync-period=100ms")

RELOADS = {
    "nat is flushed": ["iptables -t nat -F", "iptables -t nat -X"],
    "only the rules of nat go": ["iptables -t nat -F"],
    "filter is flushed": ["iptables -F", "iptables -X"],
    "mangle is flushed": ["iptables -t mangle -X"],
    "all is flushed": [
        f"{program} -t {table} {action}"
        for program in ("iptables", "ip6tables")
        for table in ("nat", "filter", "mangle")
        for action in ("-F", "-X")
    ],
    "a jump goes": ['iptables -t nat -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES'],
}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(
        tmp_path / "manifests",
        service("web", port(80), cluster_ips=["10.96.0.10", "fd96::10"]),
        endpoint_slice("web", POD),
        endpoint_slice("web", POD6, family="IPv6"),
    )


def run(world: World, command: str) -> str:
    inside = ["nsenter", f"--net={world.node.namespace.path}", "sh", "-c", command]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


def works(world: World) -> bool:
    world.pod(*CALLER)
    answers = [world.send(f"pod {CALLER[0]}", to, timeout_s=0.2) for to in (WEB, WEB6)]
    return [backends(each) for each in answers] == [{f"{POD}:8080"}, {f"[{POD6}]:8080"}]


def warnings_of(proxy: Proxy) -> list[str]:
    return [line for line in proxy.log.read_text().splitlines() if "another program" in line]


@pytest.fixture
def proxy(world: World, manifests: Path) -> Proxy:
    world.serve(f"{POD}:8080", f"[{POD6}]:8080")
    proxy = world.proxy(manifests, *OPTIONS)
    assert works(world)
    return proxy


def test_whatever_a_firewall_flushes_is_there_again_after_a_sync_period_and_said_once(world: World, proxy: Proxy):
    for what, commands in RELOADS.items():
        rules, said = run(world, "iptables-save; ip6tables-save"), len(warnings_of(proxy))
        run(world, "; ".join(commands))
        # All rules are read again after a hundred times what reading them took: a busy machine has to be waited for.
        eventually(lambda said=said: len(warnings_of(proxy)) > said, 90)
        eventually(lambda: works(world))
        expected = our_rules(rules)
        eventually(lambda expected=expected: our_rules(run(world, "iptables-save; ip6tables-save")) == expected)
        families = 2 if what == "all is flushed" else 1
        assert len(warnings_of(proxy)) == said + families, what


def our_rules(saved: str) -> list[str]:
    return sorted(line.partition(" [")[0] for line in saved.splitlines() if "KUBE-" in line)


def test_three_reloads_in_a_second_are_survived(world: World, proxy: Proxy):
    for _ in range(3):
        run(world, "; ".join(RELOADS["all is flushed"]))
        time.sleep(0.3)
    eventually(lambda: works(world))


def test_a_lock_that_is_held_from_before_the_start_delays_it_by_seconds_only(
    world: World, manifests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The lock is one of the test's own; the legacy tools wait for it, and so must kbpf."""
    if shutil.which("iptables-legacy") is None:
        pytest.skip("no iptables-legacy")
    lock_file = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock_file))
    world.serve(f"{POD}:8080", f"[{POD6}]:8080")
    log = tmp_path / "kbpf.log"
    proxy = Proxy(world.node, manifests, log, *OPTIONS[:2], "--iptables-backend=legacy", "--iptables-sync-period=30s")
    try:
        with lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            proxy.start()
            eventually(lambda: "holds the lock of iptables" in (log.read_text() if log.exists() else ""), timeout_s=30)
            assert "left out" not in log.read_text()
        released = time.monotonic()
        proxy.wait_until_healthy()
        assert time.monotonic() - released < 10
        assert works(world)
    finally:
        proxy.terminate()
        proxy.cleanup()
