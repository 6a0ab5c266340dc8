"""`kbpf verify`: does the kernel hold what it should?"""

from typing import Any

import click
import msgspec

from kbpf.cli.options import DECIDING, apply, load_asking
from kbpf.cli.own_settings import OUTPUT
from kbpf.questions.verify import Verified
from kbpf.questions.verify import verify as ask


@click.pass_context
def verify(ctx: click.Context, /, output: str, **options: Any) -> None:
    """Compare what the kernel holds with what it should hold; one line for each difference.

    It decides afresh from the source that the daemon reads, so give it the same options or the same --config. Looked
    at are the programs on their hooks, each row of the maps, and the rules; nothing is changed. What a sync is just
    about to put right does not count: a difference is told when a second look finds it again. The exit status is 1
    when there is one.

    \b
    Examples:
      kbpf verify --config /var/lib/kube-proxy/config.conf
      kbpf verify --manifests /etc/kbpf/manifests --cluster-cidr 10.42.0.0/16
    """
    found = ask(load_asking(options))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(_document(found)), indent=2))
    else:
        for line in found.differences:
            click.echo(line)
        if not found.differences:
            click.echo(f"no difference: {found.services} services, {found.frontends} frontends via {found.datapath}")
    ctx.exit(1 if found.differences else 0)


def _document(found: Verified) -> dict[str, object]:
    return {
        "datapath": found.datapath,
        "services": found.services,
        "frontends": found.frontends,
        "differences": list(found.differences),
    }


def _command() -> click.Command:
    return click.command("verify", short_help="Compare the kernel with what it should hold.")(
        apply([*DECIDING, OUTPUT], verify)
    )


verify_command = _command()
