"""`kbpf cleanup`: remove everything that is kbpf's from this node."""

from pathlib import Path

import click

from kbpf.cli.options import BPFFS_ROOT, CGROUP_ROOT, IPTABLES_BACKEND
from kbpf.clock import SystemClock
from kbpf.composition import make_ebpf, make_iptables
from kbpf.config import Config, IptablesBackend
from kbpf.errors import KbpfError


@click.command("cleanup")
@CGROUP_ROOT
@BPFFS_ROOT
@IPTABLES_BACKEND
def cleanup_command(cgroup_root: Path | None, bpffs_root: Path, iptables_backend: str) -> None:
    """Remove kbpf's rules, programs, maps and pins from this node.

    Works without an API server and without a running daemon, and may be repeated. Service traffic is no longer balanced
    afterwards; connections that eBPF has balanced go on, since they were made to the backends themselves. Rules and
    chains of others are not touched.
    """
    config = Config(cgroup_root=cgroup_root, bpffs_root=bpffs_root, iptables_backend=IptablesBackend(iptables_backend))
    clock = SystemClock()
    failures: list[str] = []
    for datapath in (make_ebpf(config, None, clock), make_iptables(config, None, clock)):
        try:
            datapath.cleanup()
        except KbpfError as error:
            failures.append(f"{datapath.name}: {error}")
    if failures:
        raise KbpfError(f"not everything could be removed: {'; '.join(failures)}")
