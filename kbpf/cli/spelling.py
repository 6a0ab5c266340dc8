"""kube-proxy's spelling of the verbosity, `-v=2` and `-v 2`, in the words of this command line."""

import re
from collections.abc import Sequence

_ATTACHED = re.compile(r"-v=?(\d+)")


def respelled(arguments: Sequence[str]) -> list[str]:
    """`-v` alone and `-vv` stay what they are: counts."""
    found: list[str] = []
    for argument in arguments:
        attached = _ATTACHED.fullmatch(argument)
        if attached:
            found.append(f"--v={attached[1]}")
        elif argument.isascii() and argument.isdigit() and found and found[-1] == "-v":
            found[-1] = f"--v={argument}"
        else:
            found.append(argument)
    return found
