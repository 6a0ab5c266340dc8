"""Where eBPF cannot run, kbpf says why in one line and balances through iptables; with --fallback=none it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from kbpf.demo.patience import patient
from kbpf.demo.remains import BPFFS
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.traces import traces
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CALLER = "pod 10.42.1.100"
PODS = ("10.42.1.10", "10.42.1.11")
WITHOUT_BCC = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs none /usr/lib/python3/dist-packages && exec "$@"',
    "sh",
)
WITHOUT_BPF = ("setpriv", "--bounding-set=-all,+net_admin,+net_raw,+dac_override")


def root(name: str) -> list[str]:
    """A --bpffs-root or --cgroup-root on a file system that is neither."""
    return [f"--{name}=/tmp/kbpf-no-such-file-system"]


LACKS = {
    "bpffs": ((), root("bpffs-root"), "bpffs"),
    "cgroup2": ((), root("cgroup-root"), "cgroup2"),
    "bcc": (WITHOUT_BCC, [], "bcc"),
    "capabilities": (WITHOUT_BPF, [], "capabilities"),
}


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(tmp_path / "manifests", service("web", port(80)), endpoint_slice("web", *PODS))


def run_once(
    world: World, manifests: Path, wrapper: tuple[str, ...], *options: str
) -> subprocess.CompletedProcess[str]:
    node = world.node
    roots = [f"--cgroup-root={node.cgroup}", f"--bpffs-root={node.bpffs}"]
    command = [sys.executable, "-m", "kbpf", "--once", f"--manifests={manifests}", *roots, *options]
    inside = ["nsenter", f"--net={node.namespace.path}", *wrapper, *command]
    return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=patient(60))


@pytest.mark.kernels("fallback")
@pytest.mark.parametrize("lack", LACKS)
def test_without_a_feature_it_names_it_once_and_runs_iptables(world: World, manifests: Path, lack: str) -> None:
    wrapper, options, word = LACKS[lack]
    world.serve(*(f"{pod}:8080" for pod in PODS))
    done = run_once(world, manifests, wrapper, *options)
    assert done.returncode == 0, done.stderr
    reasons = [line for line in done.stderr.splitlines() if "running iptables: eBPF is unavailable" in line]
    assert len(reasons) == 1
    assert word in reasons[0]
    assert "Traceback" not in done.stderr
    assert backends(world.send(CALLER, "10.96.0.10:80", count=40)) == {f"{pod}:8080" for pod in PODS}
    cleanup(world)


@pytest.mark.parametrize("lack", LACKS)
def test_without_a_fallback_it_ends_with_status_3_and_one_line(world: World, manifests: Path, lack: str) -> None:
    wrapper, options, word = LACKS[lack]
    done = run_once(world, manifests, wrapper, *options, "--fallback=none")
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith("kbpf: eBPF is unavailable")
    assert word in last


def test_the_fallback_replaces_a_running_ebpf_datapath_without_a_gap(world: World, manifests: Path) -> None:
    world.serve(*(f"{pod}:8080" for pod in PODS))
    run_once(world, manifests, (), "--datapath=ebpf", "--fallback=none")
    assert world.node.bpffs.exists()
    stream = world.stream(CALLER, "10.96.0.10:80")
    stream.wait_for(50)
    for datapath in ("iptables", "ebpf", "iptables"):
        assert run_once(world, manifests, (), f"--datapath={datapath}", "--fallback=none").returncode == 0
        stream.wait_for(50)
    report = stream.report()
    assert (report.failed, report.failures) == (0, [])
    assert not world.node.bpffs.exists()
    cleanup(world)


@pytest.mark.parametrize("protocol", ["", "/udp"])
def test_connections_that_iptables_translated_outlive_the_change_to_ebpf(
    world: World, tmp_path: Path, protocol: str
) -> None:
    web = service("web", port(80), port(80, "u", "UDP"))
    slices = endpoint_slice("web", *PODS, ports=[slice_port(8080), slice_port(8080, "u", "UDP")])
    manifests = write_manifests(tmp_path / "both", web, slices)
    world.serve(*(f"{pod}:8080{protocol}" for pod in PODS))
    assert run_once(world, manifests, (), "--datapath=iptables").returncode == 0
    sessions = world.sessions(CALLER, f"10.96.0.10:80{protocol}", count=10)
    before = backends(sessions.ping())
    assert run_once(world, manifests, (), "--datapath=ebpf", "--fallback=none").returncode == 0
    for _ in range(3):
        assert backends(sessions.ping()) == before
    cleanup(world)


def test_a_bpffs_is_mounted_where_the_kernel_has_a_place_for_it(world: World, manifests: Path) -> None:
    """In a mount namespace of its own, so that the machine's bpffs stays as it is."""
    private = ("unshare", "--mount", "sh", "-c", f'while umount --lazy {BPFFS} 2>&-; do :; done; exec "$@"', "sh")
    done = run_once(world, manifests, private, "--datapath=ebpf", "--fallback=none")
    assert done.returncode == 0, done.stderr
    assert "via ebpf" in done.stderr
    # The kernel takes them away with the last mount of that bpffs, in its own time.
    eventually(lambda: not traces(world.node))


def cleanup(world: World) -> None:
    inside = ["nsenter", f"--net={world.node.namespace.path}", sys.executable, "-m", "kbpf", "cleanup"]
    roots = [f"--cgroup-root={world.node.cgroup}", f"--bpffs-root={world.node.bpffs}"]
    subprocess.run([*inside, *roots], check=True)
