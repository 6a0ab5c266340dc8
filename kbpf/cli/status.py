"""`kbpf status`: what this node does with Services now, read from the kernel."""

import time
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kbpf.cli.options import ASKING, apply, load_asking
from kbpf.cli.own_settings import OUTPUT
from kbpf.model.address import host_port
from kbpf.questions.status import ServiceStatus, Status, document, read_status

SHOWN_BACKENDS = 3
FULL = 0.8
"""A map that is so full is shown in the table."""


def status(output: str, services: bool, **options: Any) -> None:
    """Show what this node does with Services now.

    The datapath in force and why, when it was last synced, how many frontends are left to iptables and for which
    reason, how full the maps are, and for each Service its frontends and where they lead. It is read from the kernel:
    the daemon need not run. Give it the --cgroup-root, --bpffs-root and --metrics-bind-address of the daemon, or its
    --config, where those are not the usual ones.

    \b
    Examples:
      kbpf status                        for people
      kbpf status -o json                everything, for scripts
      kbpf status -o json | jq .deferred    frontends left to iptables, by reason
    """
    found = read_status(load_asking(options), time.time())
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(found)), indent=2))
        return
    console = Console(soft_wrap=True)
    for line in _head(found):
        console.print(line, highlight=False)
    if services and found.services:
        console.print()
        console.print(_table(found.services))


def _head(found: Status) -> list[str]:
    kernel, doc = found.kernel, document(found)
    why = f" ({escape(found.reason)})" if found.reason else ""
    counts = doc["counts"]
    lines = [f"datapath: [bold]{kernel.datapath}[/]{why}", f"daemon: {_daemon(found)}"]
    lines.append(
        f"services: {counts['servicePorts']} ports, {counts['frontends']} frontends, {counts['backends']} backends"
    )
    reasons = ", ".join(f"{reason} {count}" for reason, count in found.deferred.items())
    lines.append(f"deferred to iptables: {counts['deferred']} frontends{f' ({reasons})' if reasons else ''}")
    if found.spilled:
        lines.append(f"do not fit the maps: {escape(', '.join(found.spilled))}")
    if kernel.attachments:
        lines.append(f"programs: {_programs(found)}")
    if kernel.found:
        fills = [(name, fill) for name, fill in kernel.found.fill.items() if fill.used]
        lines.append("maps: " + ", ".join(f"{name} {fill.used}/{fill.room}" for name, fill in fills))
        tight = [name for name, fill in fills if name != "config" and fill.used > FULL * fill.room]
        lines += [f"[yellow]nearly full: {', '.join(tight)}[/]"] if tight else []
    if kernel.rule_counts:
        lines.append("rules: " + ", ".join(f"{place} {count}" for place, count in kernel.rule_counts.items()))
    warnings = found.daemon.warnings if found.daemon else ()
    return lines + [f"[yellow]{escape(note)}[/]" for note in (*kernel.notes, *warnings)]


def _daemon(found: Status) -> str:
    if found.daemon is None:
        return "does not answer; what the kernel holds stays in force"
    if found.sync_age_s is None:
        return "running, nothing synced yet"
    return f"running, last sync {found.sync_age_s:.0f} s ago: {escape(found.daemon.sentence)}"


def _programs(found: Status) -> str:
    places: dict[str, list[str]] = {}
    for each in found.kernel.attachments:
        words = each.hook if each.program_id is not None else f"[red]{each.hook} (not attached)[/]"
        places.setdefault(each.place, []).append(words)
    return "; ".join(f"{escape(place)}: {', '.join(hooks)}" for place, hooks in places.items())


def _table(services: tuple[ServiceStatus, ...]) -> Table:
    table = Table("service", "frontends", "carried by", "backends", box=None)
    for service in services:
        frontends = "\n".join(each.spelled + (f" ({each.reason})" if each.reason else "") for each in service.frontends)
        carriers = "\n".join(each.carrier for each in service.frontends)
        table.add_row(escape(service.name), frontends, carriers, _backends(service))
    return table


def _backends(service: ServiceStatus) -> str:
    backends = service.backends or service.local_backends
    shown = [host_port(each.address, each.port) for each in backends[:SHOWN_BACKENDS]]
    if len(backends) > SHOWN_BACKENDS:
        shown.append(f"and {len(backends) - SHOWN_BACKENDS} more")
    return "\n".join(shown) or "none"


def _command() -> click.Command:
    services = click.option("--services/--no-services", default=True, help="List the Services below the summary.")
    return click.command("status", short_help="What this node does with Services now.")(
        apply([*ASKING, OUTPUT, services], status)
    )


status_command = _command()
