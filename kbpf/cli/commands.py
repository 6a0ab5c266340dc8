"""The subcommands, each loaded when it is named: a daemon needs none of them, nor what they import."""

from importlib import import_module

import click

PLACES = {
    "render": ("kbpf.cli.render", "render_command"),
    "status": ("kbpf.cli.status", "status_command"),
    "explain": ("kbpf.cli.explain", "explain_command"),
    "verify": ("kbpf.cli.verify", "verify_command"),
    "top": ("kbpf.cli.top", "top_command"),
    "probe": ("kbpf.cli.probe", "probe_command"),
    "cleanup": ("kbpf.cli.cleanup", "cleanup_command"),
    "demo": ("kbpf.cli.demo", "demo_command"),
}


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in PLACES else None


def load(name: str) -> click.Command:
    module, attribute = PLACES[name]
    command: click.Command = getattr(import_module(module), attribute)
    return command
