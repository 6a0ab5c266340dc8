"""The command `kbpf`: run the proxy, or one of the subcommands beside it.

Parsing, printing and exit codes live here; what a command does lives in server.py and below. Every error of ours leaves
as one line on standard error, never as a traceback.
"""

import sys
from typing import Any, NoReturn

import click

from kbpf import __version__
from kbpf.cli.cleanup import cleanup_command
from kbpf.cli.demo import demo_command
from kbpf.cli.options import LOGGING, RUNNING, apply, config_of
from kbpf.cli.probe import probe_command
from kbpf.cli.render import render_command
from kbpf.errors import KbpfError
from kbpf.observe.log import configure_logging
from kbpf.server import serve

INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended."""


@click.pass_context
def kbpf(ctx: click.Context, /, once: bool, cleanup: bool, log_format: str, verbosity: int, **options: Any) -> None:
    """A Kubernetes service load balancer in place of kube-proxy.

    Without a subcommand it runs the proxy: traffic to Services is balanced in the sockets of this node by eBPF, or by
    iptables rules where eBPF cannot run. SIGTERM and Ctrl-C end the process and leave programs and rules in place, so
    that traffic goes on; `kbpf cleanup` removes them.

    \b
    Examples:
      kbpf --manifests /etc/kbpf/manifests            no cluster, a directory of YAML
      kbpf --manifests m.yaml --datapath=iptables     iptables only
      kbpf --manifests m.yaml --once                  write once and exit
    """
    configure_logging(log_format, verbosity)
    if ctx.invoked_subcommand is not None:
        return
    config = config_of(options)
    if cleanup:
        ctx.invoke(cleanup_command, cgroup_root=config.cgroup_root, bpffs_root=config.bpffs_root)
        return
    serve(config, once=once)


def _group() -> click.Group:
    own = [
        click.option("--once", is_flag=True, help="Sync once, print the sync sentence and exit."),
        click.option("--cleanup", is_flag=True, help="Remove everything that is kbpf's and exit, like `kbpf cleanup`."),
    ]
    version = click.version_option(__version__, prog_name="kbpf")
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
    command = apply([*RUNNING, *own, *LOGGING, version], kbpf)
    return click.group(invoke_without_command=True, context_settings=settings)(command)


cli = _group()
for command in (render_command, probe_command, cleanup_command, demo_command):
    cli.add_command(command)


def main() -> NoReturn:
    """Entry point: exit codes as in the documentation (0 fine, 1 run-time failure, 2 usage, 3 unavailable, 4 owned)."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    try:
        cli.main(arguments, prog_name="kbpf", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KbpfError as error:
        click.echo(f"kbpf: {error}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return 1
    return 0
