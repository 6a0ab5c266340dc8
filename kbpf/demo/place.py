"""Where a process runs: the cgroup whose socket hooks it meets, and the network namespace that it sees.

Child processes of the demo and of the kernel tests enter their place themselves. `ip netns exec` would not do: it
mounts a fresh /sys, in which neither the cgroup tree nor bpffs is to be found.
"""

import os
from pathlib import Path

import msgspec

from kbpf.demo.cgroups import join
from kbpf.host.namespaces import enter


class Place(msgspec.Struct, frozen=True):
    """A namespace by its path, and a cgroup folder; without one the process stays in its cgroup, outside the node."""

    namespace: str
    cgroup: str | None = None

    def enter(self) -> None:
        if self.cgroup is not None:
            join(Path(self.cgroup), os.getpid())
        enter(Path(self.namespace))
