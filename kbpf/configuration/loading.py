"""From a configuration file and flags to one document and its Config; flags win.

Called by the command line. A wrong value is a UsageError that names whoever said it: the flag, or the file with the
field's path.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from kbpf.config import Config
from kbpf.configuration.document import KubeProxyConfiguration, decode
from kbpf.configuration.meaning import NOWHERE, WrongValue, config_of
from kbpf.configuration.reading import ConfigurationFile, Tree
from kbpf.errors import UsageError

UNITS = {
    "`array`": "a list",
    "`object`": "a mapping",
    "`str`": "text",
    "`int`": "a whole number",
    "`bool`": "true or false",
}
_PLACE = re.compile(r"(?P<words>.*) - at `\$\.?(?P<path>.*)`")


class Given(NamedTuple):
    """A flag that was given: the fields that it sets, and the value in the form of the file."""

    flag: str
    paths: tuple[str, ...]
    value: Any


class Loaded(msgspec.Struct, frozen=True):
    document: KubeProxyConfiguration
    config: Config
    warnings: tuple[str, ...] = ()
    file: ConfigurationFile | None = None
    flags: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What each flag comes to, for /flagz."""


def load(file: ConfigurationFile | None = None, given: Iterable[Given] = (), map_names: tuple[str, ...] = ()) -> Loaded:
    given = tuple(given)
    try:
        document = decode(overlay(file.tree if file else {}, given))
        config = config_of(document, map_names)
    except msgspec.ValidationError as error:
        raise _named(_wrong_value(error), file, given) from error
    except WrongValue as wrong:
        raise _named(wrong, file, given) from wrong
    return Loaded(effective(document, config), config, (*(file.warnings if file else ()), *notices(document)), file)


def effective(document: KubeProxyConfiguration, config: Config) -> KubeProxyConfiguration:
    """With the defaults written out that depend on other fields."""
    return msgspec.structs.replace(
        document,
        mode=document.mode or "iptables",
        hostname_override=config.node_name if document.hostname_override else "",
        healthz_bind_address=str(config.healthz_address or NOWHERE),
        metrics_bind_address=str(config.metrics_address or NOWHERE),
        node_port_addresses=config.node_port_addresses,
    )


def overlay(tree: Mapping[str, Any], given: Iterable[Given]) -> Tree:
    """The tree with the values of the flags in it."""
    overlaid = deepcopy(dict(tree))
    for each in given:
        for path in each.paths:
            *sections, name = path.split(".")
            section = overlaid
            for step in sections:
                below = section.get(step)
                section[step] = section = below if isinstance(below, dict) else {}
            section[name] = each.value
    return overlaid


def notices(document: KubeProxyConfiguration) -> Iterator[str]:
    """Settings that are there and mean nothing to kbpf: one line, so that nobody waits for their effect."""
    default = KubeProxyConfiguration()
    periods = {"sync_period": default.ipvs.sync_period, "min_sync_period": default.ipvs.min_sync_period}
    ignored = {
        "featureGates": bool(document.feature_gates),
        "ipvs": msgspec.structs.replace(document.ipvs, **periods) != default.ipvs,
        "winkernel": document.winkernel != default.winkernel,
        "showHiddenMetricsForVersion": bool(document.show_hidden_metrics_for_version),
        "portRange": bool(document.port_range),
        "windowsRunAsService": document.windows_run_as_service,
        "logging.vmodule": bool(document.logging.vmodule),
    }
    if names := [name for name, is_set in ignored.items() if is_set]:
        yield f"ignored, since kbpf has nothing like it: {', '.join(names)}"
    if document.mode not in ("", "iptables"):
        yield f"mode {document.mode}: kbpf balances with eBPF or iptables; `--datapath` chooses"


def _wrong_value(error: msgspec.ValidationError) -> WrongValue:
    found = _PLACE.fullmatch(str(error))
    words, path = (found["words"], found["path"]) if found else (str(error), "")
    for type_, name in UNITS.items():
        words = words.replace(type_, name)
    return WrongValue(path, words[:1].lower() + words[1:])


def _named(wrong: WrongValue, file: ConfigurationFile | None, given: Iterable[Given]) -> UsageError:
    for each in given:
        if any(wrong.path == path or wrong.path.startswith((f"{path}.", f"{path}[")) for path in each.paths):
            return UsageError(f"{each.flag}: {wrong.words}")
    where = f"{file.path}: " if file else ""
    return UsageError(f"{where}{wrong.path}: {wrong.words}")
