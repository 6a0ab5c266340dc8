"""Programs of others on our hooks: another load balancer in the sockets, or a tool that watches them.

Programs of everybody run, one after the other, so nothing breaks by itself; but whoever rewrites an address first wins.
`programs` names them when it attaches.
"""

from pathlib import Path

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.hooks import HOOKS
from kbpf.datapath.ebpf.links import closing, open_cgroup


def neighbours(cgroup: Path, own: frozenset[int]) -> dict[str, tuple[str, ...]]:
    """Names of the programs in force on this very cgroup that are not `own`, by hook; none where nobody else is."""
    found: dict[str, tuple[str, ...]] = {}
    with open_cgroup(cgroup) as cgroup_fd:
        for hook in HOOKS:
            try:
                ids = libbpf.attached_program_ids(cgroup_fd, hook.attach_type)
            except OSError:  # a kernel that has no such hook
                continue
            names = tuple(_name(program_id) for program_id in ids if program_id not in own)
            if names:
                found[hook.name] = names
    return found


def _name(program_id: int) -> str:
    try:
        with closing(libbpf.program_by_id(program_id)) as program_fd:
            return libbpf.program_info(program_fd).name or f"program {program_id}"
    except OSError:  # gone since
        return f"program {program_id}"
