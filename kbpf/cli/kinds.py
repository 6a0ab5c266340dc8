"""Kinds of values on the command line, in Go's spelling where kube-proxy's flags have them so."""

from enum import Enum
from typing import Any

import click

from kbpf.duration import parse_duration


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class MapEntries(click.IntRange):
    """Room in a BPF map."""

    def __init__(self) -> None:
        super().__init__(min=1, max=1 << 24)


def choice(values: type[Enum]) -> click.Choice[str]:
    return click.Choice([member.value for member in values], case_sensitive=False)
