"""What an operator asks of a node, with the real commands."""

import json
import subprocess
import sys
from typing import Any

from tests.kernel.world import World


def asked(world: World, command: str, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """A subcommand on the node, as an operator types it there."""
    node = world.node
    roots = [f"--cgroup-root={node.cgroup}", f"--bpffs-root={node.bpffs}"]
    inside = ["nsenter", f"--net={node.namespace.path}", sys.executable, "-m", "kbpf", command, *roots, *arguments]
    return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=timeout_s)


def status(world: World) -> dict[str, Any]:
    done = asked(world, "status", "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
