"""What a world leaves on the machine, found and removed by the tag that all its names start with.

The one way to end a world: after a demo, after a test, and after either crashed. Nothing is remembered for it, the
names on the machine are enough.
"""

import shutil
from pathlib import Path

from kbpf.demo.cgroups import find_cgroups, remove_tree, tree_mount
from kbpf.demo.namespaces import DIRECTORY, Namespace

BPFFS = Path("/sys/fs/bpf")


def remains(prefix: str) -> list[Path]:
    """Namespaces, pins and cgroups of all tags with this prefix. A tag holds no dash: what follows one is the thing."""
    found = [*DIRECTORY.glob(f"{prefix}*"), *BPFFS.glob(f"{prefix}*"), *find_cgroups(prefix)]
    return sorted(found)


def tags(prefix: str) -> list[str]:
    return sorted({path.name.partition("-")[0] for path in remains(prefix)})


def remove(tag: str) -> None:
    """End the processes of this tag and remove what carries it. Safe to call twice."""
    remove_tree(tree_mount() / tag)
    for pins in BPFFS.glob(f"{tag}-*"):
        shutil.rmtree(pins)
    for namespace in DIRECTORY.glob(f"{tag}-*"):
        Namespace(namespace.name).delete()
