"""`kbpf cleanup`: remove everything that is kbpf's from this node."""

from typing import Any

import click

from kbpf.cli.options import HOST, apply, load_options
from kbpf.clock import SystemClock
from kbpf.composition import make_ebpf, make_iptables
from kbpf.errors import KbpfError


def cleanup(**options: Any) -> None:
    """Remove kbpf's rules, programs, maps and pins from this node.

    Works without an API server and without a running daemon, and may be repeated. Service traffic is no longer balanced
    afterwards; connections that eBPF has balanced go on, since they were made to the backends themselves. Rules and
    chains of others are not touched.
    """
    config = load_options(options).config
    clock = SystemClock()
    failures: list[str] = []
    for datapath in (make_ebpf(config, None, clock), make_iptables(config, None, clock)):
        try:
            datapath.cleanup()
        except KbpfError as error:
            failures.append(f"{datapath.name}: {error}")
    if failures:
        raise KbpfError(f"not everything could be removed: {'; '.join(failures)}")


cleanup_command = click.command("cleanup")(apply(HOST, cleanup))
