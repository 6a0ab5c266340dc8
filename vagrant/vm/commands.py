"""Commands of the machine, and how those that fail are told."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


class VmError(Exception):
    """One line for the user."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of a command. Raises VmError with its last words."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, errors="replace")
    except FileNotFoundError as error:
        raise VmError(f"{words[0]} is not installed: `make test-vm` installs what is needed") from error
    if done.returncode:
        raise VmError(f"{_essence(words)}: exit status {done.returncode}: {_last_line(done.stderr or done.stdout)}")
    return done.stdout


def pipe(first: Sequence[str | Path], second: Sequence[str | Path]) -> None:
    """`first | second`; both must succeed."""
    with subprocess.Popen(first, stdout=subprocess.PIPE) as source:
        done = subprocess.run(second, stdin=source.stdout, capture_output=True, text=True, errors="replace")
    if source.returncode or done.returncode:
        raise VmError(f"{first[0]} | {second[0]}: {_last_line(done.stderr)}")


def _essence(words: Sequence[str]) -> str:
    return " ".join(words[:3])


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
