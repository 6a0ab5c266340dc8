"""`kbpf demo`: see kbpf work on a toy node, without a cluster."""

import os

import click

from kbpf.demo.run import run
from kbpf.demo.stage import abandoned, take_down
from kbpf.errors import UsageError

DATAPATHS = {"both": ("ebpf", "iptables"), "ebpf": ("ebpf",), "iptables": ("iptables",), "auto": ("auto",)}


@click.command("demo", short_help="See it work on a toy node, without a cluster.")
@click.option(
    "--datapath",
    type=click.Choice(list(DATAPATHS)),
    default="both",
    show_default=True,
    help="What kbpf balances with: one after the other, one of them, or what it would choose here.",
)
@click.option("--keep", is_flag=True, help="Leave the node and kbpf running, and say how to look around.")
@click.option("--remove", is_flag=True, help="Remove what an earlier --keep left, and do nothing else.")
@click.pass_context
def demo_command(ctx: click.Context, datapath: str, keep: bool, remove: bool) -> None:
    """Build a node with three pods out of network namespaces, run kbpf on it, and send real requests.

    kbpf reads the manifests in examples/. The table shows which backend answered how often, and how fast in comparison
    with asking the backends directly; then a backend leaves while requests go on. Everything is removed at the end.
    Needs root. The exit status is 1 when a request failed, or when a backend was never used.
    """
    if os.geteuid() != 0:
        raise UsageError("kbpf demo needs root: it builds network namespaces and loads programs; try sudo")
    if remove:
        for tag in abandoned():
            take_down(tag)
            click.echo(f"removed {tag}")
        return
    ctx.exit(run(DATAPATHS[datapath], keep=keep))
