"""The command `kbpf`: run the proxy, or one of the subcommands beside it.

Parsing, printing and exit codes live here; what a command does lives in server.py and below. Every error of ours leaves
as one line on standard error, never as a traceback.
"""

import logging
from pathlib import Path
from typing import Any

import click
import yaml

from kbpf import __version__
from kbpf.cli.commands import Commands, load
from kbpf.cli.kubeproxy_settings import IGNORED
from kbpf.cli.options import CONFIG, HOST, LOGGING, RUNNING, apply, ignored_flags, load_options
from kbpf.cli.spelling import respelled
from kbpf.configuration.document import encode
from kbpf.configuration.reading import read_configuration
from kbpf.errors import KbpfError, UsageError
from kbpf.observe.log import configure_logging
from kbpf.server import prepare_node, serve

log = logging.getLogger(__name__)


@click.pass_context
def kbpf(
    ctx: click.Context,
    /,
    config: Path | None,
    write_config_to: Path | None,
    once: bool,
    force: bool,
    init_only: bool,
    cleanup: bool,
    **options: Any,
) -> None:
    """A Kubernetes service load balancer in place of kube-proxy.

    Without a subcommand it runs the proxy: traffic to Services is balanced in the sockets of this node by eBPF, or by
    iptables rules where eBPF cannot run. SIGTERM and Ctrl-C end the process and leave programs and rules in place, so
    that traffic goes on; `kbpf cleanup` removes them.

    \b
    Examples:
      kbpf --config /var/lib/kube-proxy/config.conf   in a cluster, with kube-proxy's own configuration
      kbpf --manifests /etc/kbpf/manifests            no cluster, a directory of YAML
      kbpf --manifests m.yaml --datapath=iptables     iptables only
      kbpf --manifests m.yaml --once                  write once and exit
    """
    file = read_configuration(config) if config else None
    loaded = load_options(options, file)
    configure_logging(loaded.document.logging.format, loaded.document.logging.verbosity)
    if ctx.invoked_subcommand is not None:
        return
    if write_config_to is not None:
        _write_configuration(write_config_to, encode(loaded.document))
        return
    for warning in loaded.warnings:
        log.warning(warning)
    if flags := ignored_flags(options):
        log.warning(f"without effect: {', '.join(flags)}")
    if cleanup:
        ctx.invoke(load("cleanup"), **{setting.parameter: options[setting.parameter] for setting in HOST})
        return
    if init_only:
        prepare_node(loaded.config)
        return
    serve(loaded, once=once, force=force)


def _write_configuration(path: Path, tree: dict[str, object]) -> None:
    try:
        path.write_text(yaml.safe_dump(tree))
    except OSError as error:
        raise UsageError(f"--write-config-to {path}: {error.strerror or error}") from error
    click.echo(f"kbpf: wrote the configuration to {path}", err=True)


def _group() -> click.Group:
    own = [
        click.option(
            "--write-config-to",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write the configuration that would be used, defaults and flags included, and exit.",
        ),
        click.option("--once", is_flag=True, help="Sync once, print the sync sentence and exit."),
        click.option("--force", is_flag=True, help="Start although another service proxy runs on this node."),
        click.option(
            "--init-only",
            is_flag=True,
            help="Set what needs full privileges and outlives the process, and exit: a later kbpf can do with fewer.",
        ),
        click.option("--cleanup", is_flag=True, help="Remove everything that is kbpf's and exit, like `kbpf cleanup`."),
    ]
    version = click.version_option(__version__, prog_name="kbpf")
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
    command = apply([CONFIG, *RUNNING, *own, *LOGGING, version, *IGNORED], kbpf)
    return click.group(cls=Commands, invoke_without_command=True, context_settings=settings)(command)


cli = _group()


def run(arguments: list[str]) -> int:
    """The exit status. Raises KeyboardInterrupt for Ctrl-C."""
    try:
        status = cli.main(respelled(arguments), prog_name="kbpf", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KbpfError as error:
        click.echo(f"kbpf: {error}", err=True)
        return error.exit_code
    except click.Abort as error:  # click's name for it
        raise KeyboardInterrupt from error
    except BrokenPipeError:
        return 1
    return status if isinstance(status, int) else 0
