"""The machines of kernels.json: which kernel each boots, and what is special about it.

The Vagrantfile reads the same file. `package` is the archive's name for the newest kernel of a line, so that security
updates come by themselves.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vagrant.vm.commands import VmError

MATRIX = Path(__file__).parents[1] / "kernels.json"


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    suite: str
    package: str
    site: str = ""
    """Where the suite is when Debian's archive has other kernels in it by now: its state of a day, which stays."""
    is_optional: bool = False
    """The archive may have dropped it: then it is skipped, with that reason."""
    target: tuple[str, ...] = ("test-this-kernel",)
    """What make is given, unless the user names something else."""
    boot: tuple[str, ...] = ()
    """Words for the kernel's command line; KBPF_… among them are guest/init's."""


def load() -> dict[str, Kernel]:
    return {entry["name"]: _kernel(entry) for entry in _matrix()["kernels"]}


def choose(names: str) -> list[Kernel]:
    """`6.1,6.12`, in this order; empty means the default ones, `all` all. Raises VmError for a name not there."""
    kernels = load()
    wanted = list(kernels) if names == "all" else names.replace(",", " ").split() or _matrix()["default"]
    unknown = [name for name in wanted if name not in kernels]
    if unknown:
        raise VmError(f"no such machine: {', '.join(unknown)}; there are {', '.join(kernels)}")
    return [kernels[name] for name in wanted]


def _matrix() -> Any:
    return json.loads(MATRIX.read_text())


def _kernel(entry: dict[str, Any]) -> Kernel:
    words = {name: tuple(entry[name].split()) for name in ("target", "boot") if name in entry}
    site, is_optional = entry.get("site", ""), entry.get("optional", False)
    return Kernel(entry["name"], entry["suite"], entry["package"], site, is_optional, **words)
