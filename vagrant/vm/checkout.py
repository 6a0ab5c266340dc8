"""The source as it stands, whether committed or not: what git knows and what it would add."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from vagrant.vm.commands import run

ROOT = Path(__file__).parents[2]


COMMAND = Path("build/vm-command")
"""In the archive: what guest/init runs in the checkout, as a line of shell."""


def pack(target: Path, command: Sequence[str]) -> None:
    """A tar archive that a machine reads as a disk."""
    listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
    names = [name for name in listed.splitlines() if (ROOT / name).is_file()]
    scratch = target.parent
    listing, file = scratch / "names", scratch / COMMAND
    listing.write_text("\n".join(names))
    file.parent.mkdir()
    file.write_text(f"exec {shlex.join(command)}\n")
    owner = ("--owner=0", "--group=0", f"--file={target}")
    run("tar", "--create", *owner, f"--directory={ROOT}", f"--files-from={listing}")
    run("tar", "--append", *owner, f"--directory={scratch}", COMMAND)


def commit() -> str:
    """Its short name; with `+` when files differ from it."""
    changes = run("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no")
    return run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip() + ("+" if changes else "")
