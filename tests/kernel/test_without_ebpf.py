"""A machine that cannot run eBPF: `make test-vm KERNELS=cgroup1,no-bpf` boots such ones, and KBPF_LACKS says why."""

import json
import os
from pathlib import Path

import pytest

from kbpf.errors import KbpfError
from tests.builders import endpoint_slice, port, service
from tests.kernel.asking import asked
from tests.kernel.world import World, backends
from tests.manifests import write_manifests

LACKING = os.environ.get("KBPF_LACKS", "")
WORDS = {"cgroup2": "is not a folder of a cgroup2 hierarchy", "bpf": "Function not implemented"}
pytestmark = [
    pytest.mark.root,
    pytest.mark.kernels("fallback"),
    pytest.mark.skipif(not LACKING, reason="for machines that cannot run eBPF"),
]

PODS = ("10.42.1.10", "10.42.2.10")


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return write_manifests(tmp_path / "manifests", service("web", port(80)), endpoint_slice("web", *PODS))


def test_iptables_serves_and_the_log_says_why_once(world: World, manifests: Path) -> None:
    world.serve(*(f"{pod}:8080" for pod in PODS))
    proxy = world.proxy(manifests)
    reasons = [line for line in proxy.log.read_text().splitlines() if "running iptables: eBPF is unavailable" in line]
    assert len(reasons) == 1
    assert WORDS[LACKING] in reasons[0]
    for origin in ("pod 10.42.1.100", "host"):
        assert backends(world.send(origin, "10.96.0.10:80", count=40)) == {f"{pod}:8080" for pod in PODS}


def test_without_a_fallback_it_ends_with_status_3(world: World, manifests: Path) -> None:
    with pytest.raises(KbpfError, match=f"ended with status 3: kbpf: eBPF is unavailable.*{WORDS[LACKING]}"):
        world.proxy(manifests, "--fallback=none")


def test_the_probe_names_what_is_missing(world: World) -> None:
    probed = json.loads(asked(world, "probe", "-o", "json").stdout)
    assert probed["datapath"] == "iptables"
    assert WORDS[LACKING] in probed["reason"]
