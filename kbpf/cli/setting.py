"""A setting: one flag, and the fields of the KubeProxyConfiguration that it sets.

The tables of settings are in kubeproxy_settings.py and own_settings.py. A flag has no default of its own: what was not
given is the file's to say, and the document's after that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import click
import msgspec

from kbpf.cli.kinds import Duration
from kbpf.configuration.document import KubeProxyConfiguration, encode
from kbpf.configuration.loading import Given
from kbpf.duration import format_duration

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULTS = encode(KubeProxyConfiguration())


class Setting(msgspec.Struct, frozen=True):
    """`default` is shown in the help where the document's own would not tell."""

    flag: str
    paths: tuple[str, ...]
    help: str
    type: click.ParamType[Any] | type = str
    metavar: str | None = None
    default: str = ""
    is_list: bool = False
    """Repeatable; each value may hold several, separated by commas, unless `splits` is False."""
    splits: bool = True
    is_hidden: bool = False

    @property
    def parameter(self) -> str:
        """The name under which click hands it over."""
        return self.flag.removeprefix("--").replace("-", "_")

    def option(self) -> Callable[[Command], Command]:
        more: dict[str, Any] = {"metavar": self.metavar}
        if self.type is bool:
            # Go's booleans: `--name`, `--name=true` and `--name=false`.
            more = {"metavar": "BOOL", "is_flag": False, "flag_value": True}
        return click.option(
            self.flag,
            type=self.type,
            default=None,
            multiple=self.is_list,
            show_default=self.default or value_in(DEFAULTS, self) or False,
            help=self.help,
            hidden=self.is_hidden,
            **more,
        )

    def given(self, value: Any) -> Given | None:
        """What the flag says in the words of a file; None when it was not given."""
        if value is None or (self.is_list and not value):
            return None
        if self.is_list and self.splits:
            value = [part.strip() for text in value for part in text.split(",") if part.strip()]
        elif self.is_list:
            value = list(value)
        elif isinstance(self.type, Duration):
            value = format_duration(value)
        return Given(self.flag, self.paths, value)


def given_of(settings: Iterable[Setting], options: Mapping[str, Any]) -> Iterator[Given]:
    """The flags that were given to a command that has `settings`."""
    for setting in settings:
        if given := setting.given(options.get(setting.parameter)):
            yield given


def value_in(tree: Mapping[str, Any], setting: Setting) -> str:
    """What an encoded document says about the setting, as the flag would be written."""
    value: Any = tree
    for step in setting.paths[0].split(".") if setting.paths else ():
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "" if value is None or isinstance(value, dict) else str(value)
