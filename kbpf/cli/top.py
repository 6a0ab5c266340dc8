"""`kbpf top`: who gets the connections."""

import time
from itertools import count
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kbpf.cli.kinds import Duration
from kbpf.cli.options import ASKING, apply, load_asking
from kbpf.cli.own_settings import OUTPUT
from kbpf.questions.top import Rate, rates, read_counts


def top(output: str, interval: float, rounds: int, limit: int, **options: Any) -> None:
    """Show live how many new connections per second each backend of each Service gets.

    Of eBPF these are choices of a backend: TCP connections, connected UDP sockets, and datagrams of others that chose
    anew. Of iptables they are connections as conntrack knows them. The daemon need not run. Ctrl-C ends it.

    \b
    Examples:
      kbpf top                        every second, until Ctrl-C
      kbpf top --interval 10s -n 1    one look over ten seconds
      kbpf top -n 1 -o json           the same for scripts
    """
    config = load_asking(options)
    console = Console(soft_wrap=True)
    before, began = read_counts(config), time.monotonic()
    for number in count(1):
        time.sleep(interval)
        after, now = read_counts(config), time.monotonic()
        found = rates(before, after, now - began)
        if output == "json":
            click.echo(msgspec.json.encode(_document(found, now - began)))
        else:
            if console.is_terminal:
                console.clear()
            console.print(_table(found[:limit], now - began))
        if number == rounds:
            return
        before, began = after, now


def _document(found: tuple[Rate, ...], seconds: float) -> dict[str, object]:
    return {
        "seconds": round(seconds, 3),
        "rates": [
            {
                "service": rate.destination.service,
                "backend": rate.destination.backend,
                "connections": rate.connections,
                "perSecond": round(rate.per_second, 3),
            }
            for rate in found
        ],
    }


def _table(found: tuple[Rate, ...], seconds: float) -> Table:
    total = sum(rate.per_second for rate in found)
    table = Table("service", "backend", "per second", box=None, caption=f"{total:.1f} per second in {seconds:.1f} s")
    table.columns[2].justify = "right"
    for rate in found:
        table.add_row(escape(rate.destination.service), rate.destination.backend, f"{rate.per_second:.1f}")
    return table


def _command() -> click.Command:
    own = [
        click.option("--interval", type=Duration(), default="1s", show_default=True, help="Between two looks."),
        click.option(
            "-n",
            "--rounds",
            type=click.IntRange(min=0),
            default=0,
            show_default="until Ctrl-C",
            help="How many looks; then end.",
        ),
        click.option(
            "--limit", type=click.IntRange(min=1), default=40, show_default=True, help="Lines of a table, the busiest."
        ),
    ]
    return click.command("top", short_help="New connections per second, by Service and backend.")(
        apply([*own, *ASKING, OUTPUT], top)
    )


top_command = _command()
