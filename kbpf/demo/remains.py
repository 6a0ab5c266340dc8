"""What a world leaves on the machine, found and removed by the tag that all its names start with.

The one way to end a world: after a demo, after a test, and after either crashed. Nothing is remembered for it, the
names on the machine are enough.
"""

import shutil
import subprocess
from pathlib import Path

from kbpf.demo.cgroups import cgroup2_mount, remove_tree
from kbpf.demo.namespaces import DIRECTORY, Namespace
from kbpf.errors import CommandFailed

BPFFS = Path("/sys/fs/bpf")


def remains(tag: str) -> list[str]:
    """What carries this tag now, one path each: namespaces, pins, the cgroup."""
    cgroup = cgroup2_mount() / tag
    found = [*DIRECTORY.glob(f"{tag}-*"), *BPFFS.glob(f"{tag}-*"), *([cgroup] if cgroup.exists() else [])]
    return sorted(str(path) for path in found)


def remove(tag: str) -> None:
    """End the processes of this tag and remove what carries it. Safe to call twice."""
    remove_tree(cgroup2_mount() / tag)
    for pins in BPFFS.glob(f"{tag}-*"):
        shutil.rmtree(pins)
    for namespace in DIRECTORY.glob(f"{tag}-*"):
        Namespace(namespace.name).delete()


def mount_bpffs() -> None:
    """Most distributions mount it at boot; containers often do not."""
    if BPFFS.is_mount():
        return
    command = ["mount", "-t", "bpf", "bpf", str(BPFFS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(" ".join(command), done.returncode, done.stderr)
