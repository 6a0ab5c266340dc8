"""What the commands have in common: their settings as options, and how those become one configuration."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from kbpf.cli import kubeproxy_settings, own_settings
from kbpf.cli.setting import Setting, given_of, value_in
from kbpf.config import Config
from kbpf.configuration.document import encode
from kbpf.configuration.loading import Loaded, load
from kbpf.configuration.reading import ConfigurationFile, read_configuration
from kbpf.datapath.ebpf.sizes import DEFAULT_ENTRIES

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

MAP_NAMES = tuple(DEFAULT_ENTRIES)
HOST = (own_settings.CGROUP_ROOT, own_settings.BPFFS_ROOT, own_settings.IPTABLES_BACKEND)
TRAFFIC = (*kubeproxy_settings.TRAFFIC, own_settings.NODE_IP)
RUNNING = (
    own_settings.MANIFESTS,
    own_settings.DATAPATH,
    own_settings.FALLBACK,
    own_settings.UNDERLAY,
    *HOST,
    *TRAFFIC,
    own_settings.DEVICES,
    own_settings.POD_DEVICES,
    own_settings.CONNECTION_SERIES,
    own_settings.TC_ATTACHMENT,
    own_settings.SOCKET_LB_SCOPE,
    own_settings.HOLD_NODE_PORTS,
    *kubeproxy_settings.PROCESS,
    *own_settings.MAP_ENTRIES,
    *kubeproxy_settings.UNUSED,
)
CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A KubeProxyConfiguration, as kube-proxy reads it; kbpf's own settings stand in it under `kbpf:`. "
    "Flags win over the file. When it changes the process ends.",
)
METRICS = next(each for each in kubeproxy_settings.PROCESS if each.flag == "--metrics-bind-address")
ASKING: tuple[Setting | Option, ...] = (CONFIG, *HOST, METRICS)
"""Of a command that asks the kernel of a node what a daemon with these settings put there."""
SOURCE = (
    own_settings.MANIFESTS,
    *(each for each in kubeproxy_settings.PROCESS if each.flag in ("--kubeconfig", "--master")),
)
DECIDING: tuple[Setting | Option, ...] = (
    *ASKING,
    *SOURCE,
    own_settings.DATAPATH,
    own_settings.UNDERLAY,
    *TRAFFIC,
    own_settings.DEVICES,
    own_settings.POD_DEVICES,
    own_settings.TC_ATTACHMENT,
)
"""… and what it should have put there."""
LOGGING: tuple[Option, ...] = (
    click.option("--log-format", type=click.Choice(["text", "json"]), default=None, show_default="text"),
    click.option("-v", "--verbose", "verbosity", count=True, help="Say more; -v=2 and --v=2 mean the same as -vv."),
    click.option("--v", "level", type=click.IntRange(min=0), hidden=True),
)
LOG_FORMAT = Setting("--log-format", ("logging.format",), "")
LEVEL = Setting("--v", ("logging.verbosity",), "")


def apply(options: Sequence[Setting | Option], command: Command) -> Command:
    """Decorate `command` with `options`, shown by --help in their order."""
    for each in reversed(options):
        command = (each.option() if isinstance(each, Setting) else each)(command)
    return command


def load_options(options: Mapping[str, Any], file: ConfigurationFile | None = None) -> Loaded:
    """The configuration of a command that has some of RUNNING and LOGGING. Raises UsageError."""
    level = options.get("level")
    level = (options.get("verbosity") or None) if level is None else level
    logging = (LOG_FORMAT.given(options.get("log_format")), LEVEL.given(level))
    loaded = load(file, (*given_of(RUNNING, options), *filter(None, logging)), MAP_NAMES)
    tree = encode(loaded.document)
    return replace(loaded, flags={setting.flag.removeprefix("--"): value_in(tree, setting) for setting in RUNNING})


def load_asking(options: Mapping[str, Any]) -> Config:
    """The configuration of a command that has ASKING, or DECIDING too. Raises UsageError."""
    path = options.get("config")
    return load_options(options, read_configuration(path) if path else None).config


def ignored_flags(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags of kube-proxy that were given and have no effect."""
    flags = (*kubeproxy_settings.IGNORED_WITH_VALUE, *kubeproxy_settings.IGNORED_BOOLEANS)
    return tuple(flag for flag in flags if options.get(flag.removeprefix("--").replace("-", "_")) not in (None, ()))
