"""`kbpf explain`: what happens to a connection, and why."""

from typing import Any

import click
import msgspec

from kbpf.cli.options import DECIDING, apply, load_asking
from kbpf.cli.own_settings import OUTPUT
from kbpf.model.address import host_port
from kbpf.model.flow import Origin
from kbpf.questions.explain import ORIGINS, Explanation, Side, document, read_explanation, verdict_words


@click.pass_context
def explain(ctx: click.Context, /, client: str, destination: str, origin: str | None, output: str, **more: Any) -> None:
    """Explain what happens to a connection from CLIENT to DESTINATION, step by step.

    CLIENT is an IP address, or `host` for this node itself. DESTINATION is ADDRESS:PORT, with /udp or /sctp behind it
    where it is not TCP. Told are what should happen, decided from the source (give the options of the daemon, or its
    --config), and what the kernel does with what it holds now: the rows and rules that the flow meets. The exit status
    is 1 when the two differ. Without a source only the kernel is asked.

    \b
    Examples:
      kbpf explain 10.42.1.9 10.96.0.10:80 --manifests /etc/kbpf/manifests
      kbpf explain host 10.96.0.53:53/udp --config /var/lib/kube-proxy/config.conf
      kbpf explain 198.51.100.7 '[fd60::11]:30080' --from outside
    """
    found = read_explanation(load_asking(more), client, destination, Origin(origin) if origin else None)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(found)), indent=2))
    else:
        click.echo("\n".join(_lines(found)))
    ctx.exit(1 if found.difference else 0)


def _lines(found: Explanation) -> list[str]:
    flow = found.flow
    to = f"{host_port(flow.destination, flow.port)}/{flow.protocol.value.lower()}"
    lines = [f"{flow.source} ({ORIGINS[flow.origin]}) to {to}"]
    lines += ["", "wanted:", *_side(found.wanted), "", "in the kernel:", *_side(found.kernel), ""]
    if found.difference:
        return [*lines, f"THEY DIFFER: {found.difference}"]
    is_known = found.wanted.verdict is not None and found.kernel.verdict is not None
    return [*lines, "the two agree" if is_known else "the two cannot be compared"]


def _side(side: Side) -> list[str]:
    return [*(f"  {step}" for step in side.steps), f"  => {verdict_words(side)}"]


def _command() -> click.Command:
    own = [
        click.argument("client"),
        click.argument("destination"),
        click.option(
            "--from",
            "origin",
            type=click.Choice([each.value for each in Origin]),
            default=None,
            show_default="as the address of CLIENT tells",
            help="Where CLIENT is: in a pod of this node, in the node itself, or elsewhere.",
        ),
    ]
    return click.command("explain", short_help="What happens to a connection, and why.")(
        apply([*own, *DECIDING, OUTPUT], explain)
    )


explain_command = _command()
