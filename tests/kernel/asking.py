"""Commands that ask, run on the node of a world as an operator types them there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kbpf.demo.patience import patient
from tests.kernel.world import CLUSTER_RANGES, World


def asked(world: World, command: str, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """A subcommand on the node, as an operator types it there."""
    node = world.node
    roots = [f"--cgroup-root={node.cgroup}", f"--bpffs-root={node.bpffs}"]
    inside = ["nsenter", f"--net={node.namespace.path}", sys.executable, "-m", "kbpf", command, *roots, *arguments]
    return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=patient(timeout_s))


def status(world: World) -> dict[str, Any]:
    done = asked(world, "status", "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def deciding(manifests: Path) -> tuple[str, ...]:
    return f"--manifests={manifests}", "--cluster-cidr", CLUSTER_RANGES, "--hostname-override=n1"


def verified(world: World, manifests: Path) -> tuple[int, list[str]]:
    done = asked(world, "verify", *deciding(manifests))
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout.splitlines()
