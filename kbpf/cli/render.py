"""`kbpf render`: print what would be programmed, from manifests alone."""

from typing import Any

import click
import msgspec
from msgspec.structs import replace

from kbpf.cli.options import TRAFFIC, apply, load_options
from kbpf.cli.own_settings import MANIFESTS, UNDERLAY
from kbpf.datapath.ebpf import text
from kbpf.datapath.iptables.ruleset import RestoreInput
from kbpf.errors import UsageError
from kbpf.model.address import Family
from kbpf.node_settings import iptables_settings
from kbpf.rendering import decide, render_ebpf, render_iptables
from kbpf.source.manifests import load_manifests

RESTORE_COMMANDS = {Family.IPV4: "iptables-restore --noflush", Family.IPV6: "ip6tables-restore --noflush"}


def render(datapath: str, output: str, **options: Any) -> None:
    """Print what would be programmed for this node, from manifests alone.

    It looks at no kernel and needs no root. For iptables that is the input of iptables-restore and ip6tables-restore;
    for eBPF the rows of the maps, and the rules of what eBPF leaves to iptables, or of all with --underlay=full.

    \b
    Examples:
      kbpf render --manifests examples/ --datapath iptables
      kubectl get services,endpointslices,nodes -A -o yaml | kbpf render --manifests - --hostname-override node-1
    """
    config = load_options(options).config
    if not config.manifests:
        raise UsageError("nothing to render: name manifests with --manifests PATH")
    events, problems = load_manifests(config.manifests, config.node_name)
    decided = decide(events, config.node_name)
    for problem in (*problems, *decided.problems):
        click.echo(f"kbpf: {problem}", err=True)
    # For no machine in particular: what depends on the addresses of this one is left open.
    settings = iptables_settings(config, decided.node, frozenset)
    if datapath == "iptables":
        rules = render_iptables(decided.table, settings)
        click.echo(_json(_rules_document(rules)) if output == "json" else _rules_text(rules), nl=False)
        return
    rendering = render_ebpf(decided.table, masquerade_all=config.masquerade_all)
    beneath = decided.table if config.rules_hold_all else rendering.residue
    rules = render_iptables(beneath, replace(settings, is_residue=not config.rules_hold_all))
    if output == "json":
        click.echo(_json({"maps": text.document(rendering.rows), "residue": _rules_document(rules)}), nl=False)
    else:
        click.echo(text.dump(rendering.rows) + _rules_text(rules), nl=False)


def _rules_text(rules: dict[Family, RestoreInput]) -> str:
    return "".join(f"# {RESTORE_COMMANDS[family]}\n{restore.text}" for family, restore in rules.items())


def _rules_document(rules: dict[Family, RestoreInput]) -> dict[str, Any]:
    return {
        family.value: {
            part.table.value: {chain.name: list(chain.rules) for chain in part.chains} for part in restore.tables
        }
        for family, restore in rules.items()
    }


def _json(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _command() -> click.Command:
    own = [
        click.option("--datapath", type=click.Choice(["iptables", "ebpf"]), default="iptables", show_default=True),
        click.option(
            "--format",
            "output",
            type=click.Choice(["restore", "json"]),
            default="restore",
            show_default=True,
            help="restore: lines as iptables-restore reads them, or the rows of the maps; json: the same for machines.",
        ),
    ]
    return click.command("render")(apply([MANIFESTS, *own, UNDERLAY, *TRAFFIC], render))


render_command = _command()
