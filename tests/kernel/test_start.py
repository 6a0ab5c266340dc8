"""Start and end of kbpf as a process: who is on the node, signals at any moment, a configuration that changes."""

import http.client
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbpf.demo.cgroups import join
from kbpf.demo.proxy import Proxy
from tests.builders import endpoint_slice, port, service
from tests.kernel.traces import traces
from tests.kernel.world import World, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

KUBE_PROXY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def version_string(self): return ""
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"iptables")
http.server.HTTPServer(("127.0.0.1", 10249), Handler).serve_forever()
"""
CAUTION = ("--conntrack-max-per-core=0", "--oom-score-adj=0")

Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(tmp_path / "manifests", service("web", port(80)), endpoint_slice("web", "10.42.1.10"))


@pytest.fixture
def run(world: World) -> Iterator[Run]:
    """kbpf with these arguments on the node; whatever still runs is killed, and what it left is removed."""
    node, started = world.node, []

    def start(*arguments: str) -> subprocess.Popen[str]:
        roots = [f"--cgroup-root={node.cgroup}", f"--bpffs-root={node.bpffs}"]
        command = ["nsenter", f"--net={node.namespace.path}", sys.executable, "-m", "kbpf", *roots, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        join(node.cgroup / "host", process.pid)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    Proxy(node, Path(), Path()).cleanup()


@pytest.fixture
def kube_proxy(world: World) -> Iterator[None]:
    """What it answers, on its address."""
    command = ["nsenter", f"--net={world.node.namespace.path}", sys.executable, "-c", KUBE_PROXY]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    eventually(lambda: get(world, 10249, "/proxyMode") == "iptables")
    yield
    process.kill()
    process.wait()


def get(world: World, number: int, path: str) -> str | None:
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=2)
    try:
        with world.node.namespace.entered():
            connection.connect()
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except OSError:
        return None
    finally:
        connection.close()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=30)
    return process.returncode, output


def test_beside_a_live_kube_proxy_it_ends_with_status_4_and_has_touched_nothing(
    world: World, run: Run, manifests: Path, kube_proxy: None
) -> None:
    status, output = ended(run(f"--manifests={manifests}", "--datapath=iptables", *CAUTION))
    assert status == 4
    assert output.splitlines()[-1].startswith("kbpf: kube-proxy runs on this node (127.0.0.1:10249/proxyMode answers")
    assert traces(world.node) == []


def test_with_force_it_starts_beside_one(world: World, run: Run, manifests: Path, kube_proxy: None) -> None:
    status, output = ended(run(f"--manifests={manifests}", "--datapath=iptables", "--once", "--force", *CAUTION))
    assert (status, "as --force says" in output) == (0, True), output


def test_tables_of_a_kube_proxy_that_is_gone_are_reported(world: World, run: Run, manifests: Path) -> None:
    inside = ["nsenter", f"--net={world.node.namespace.path}"]
    subprocess.run([*inside, "nft", "add", "table", "ip", "kube-proxy"], check=True)
    world.node.namespace.ip("link add kube-ipvs0 type veth peer name wire0")
    status, output = ended(run(f"--manifests={manifests}", "--datapath=iptables", "--once", *CAUTION))
    assert status == 0, output
    assert "the nftables table kube-proxy balances as well" in output
    assert "the device kube-ipvs0 holds service addresses" in output


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it_without_a_traceback(
    world: World, run: Run, manifests: Path, how: signal.Signals
) -> None:
    for delay_s in (0.3, 0.6, 0.9, 1.2):
        process = run(f"--manifests={manifests}", "--datapath=ebpf", "--fallback=none", *CAUTION)
        time.sleep(delay_s)
        process.send_signal(how)
        status, output = ended(process)
        assert status in (0, -how, 130), output
        assert "Traceback" not in output


def test_nothing_is_written_while_a_list_is_missing(world: World, run: Run, tmp_path: Path) -> None:
    process = run(f"--manifests={tmp_path / 'not-yet'}", "--datapath=iptables", *CAUTION)
    eventually(lambda: get(world, 10256, "/healthz") is not None)
    time.sleep(0.5)
    assert '"healthy":false' in (get(world, 10256, "/healthz") or "")
    assert '"healthy":true' in (get(world, 10256, "/livez") or "")
    assert traces(world.node) == []
    process.terminate()
    assert ended(process)[0] == 0
    assert traces(world.node) == []


def test_a_configuration_that_changes_ends_it_with_one_line_and_leaves_the_rules(
    world: World, run: Run, manifests: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    own = f"kbpf: {{datapath: iptables, manifests: ['{manifests}']}}\noomScoreAdj: 0\nconntrack: {{maxPerCore: 0}}\n"
    file.write_text(head + own)
    process = run(f"--config={file}")
    eventually(lambda: '"healthy":true,"status":{"IPv4"' in (get(world, 10256, "/healthz") or ""))
    assert get(world, 10249, "/proxyMode") == "iptables"
    file.write_text(head + own + "clusterCIDR: 10.42.0.0/16\n")
    status, output = ended(process)
    assert status == 1
    assert output.splitlines()[-1] == (f"kbpf: {file} has changed: ending, to be started with the new configuration")
    assert traces(world.node) != []
