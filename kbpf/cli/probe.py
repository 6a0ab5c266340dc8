"""`kbpf probe`: what this kernel offers, which datapath would run, and why."""

from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from kbpf.cli.options import HOST, apply, load_options
from kbpf.cli.own_settings import DATAPATH, OUTPUT, TC_ATTACHMENT
from kbpf.clock import SystemClock
from kbpf.composition import make_ebpf, make_iptables
from kbpf.datapath.interface import Answer, Support
from kbpf.datapath.select import preferred

COLOURS = {Answer.YES: "green", Answer.NO: "red", Answer.UNKNOWN: "yellow"}


def probe(output: str, **options: Any) -> None:
    """Show what this kernel and host offer, feature by feature, and which datapath would run.

    Each answer is yes, no or "cannot tell", with the evidence. Nothing is changed; without root most answers are
    "cannot tell".
    """
    config = load_options(options).config
    clock = SystemClock()
    supports = {"ebpf": make_ebpf(config, None, clock).probe(), "iptables": make_iptables(config, None, clock).probe()}
    name, reason = preferred(config.datapath.value, True, supports["ebpf"])
    if name == "iptables" and supports["iptables"].answer is Answer.NO:
        name, reason = "none", f"{supports['iptables'].reason}; {reason}"
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(_document(supports, name, reason)), indent=2))
    else:
        _show(supports, name, reason)


def _document(supports: dict[str, Support], name: str, reason: str) -> dict[str, object]:
    return {
        "datapath": name,
        "reason": reason,
        "datapaths": {
            each: {"answer": support.answer.value, "reason": support.reason} for each, support in supports.items()
        },
        "features": [
            {"datapath": each, "name": feature.name, "answer": feature.answer.value, "reason": feature.reason}
            for each, support in supports.items()
            for feature in support.features
        ],
    }


def _show(supports: dict[str, Support], name: str, reason: str) -> None:
    table = Table("datapath", "feature", "answer", "reason", box=None)
    for each, support in supports.items():
        for feature in support.features:
            colour = COLOURS[feature.answer]
            table.add_row(each, feature.name, f"[{colour}]{feature.answer.value}[/]", feature.reason)
    console = Console()
    console.print(table)
    console.print(f"\nWould run: [bold]{name}[/] ({reason})", highlight=False)


def _command() -> click.Command:
    return click.command("probe")(apply([*HOST, DATAPATH, TC_ATTACHMENT, OUTPUT], probe))


probe_command = _command()
