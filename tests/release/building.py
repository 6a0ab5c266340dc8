"""Builds wheel and sdist from what git tracks, away from the checkout: a file that was never added cannot slip in."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Distributions:
    sdist: Path
    wheel: Path


def tracked() -> tuple[str, ...]:
    """Every file that git tracks and that is still there, as paths from the top of the checkout."""
    listed = _git("ls-files", "-z").split("\0")
    return tuple(name for name in listed if name and (REPOSITORY / name).exists())


def last_change() -> str:
    """The time of the last commit, as SOURCE_DATE_EPOCH wants it."""
    return _git("log", "-1", "--format=%ct").strip()


def copy_sources(target: Path) -> Path:
    """The checkout as a clone would have it, with file times of its own."""
    for name in tracked():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((REPOSITORY / name).read_bytes())
        path.chmod((REPOSITORY / name).stat().st_mode)
    return target


def build(source: Path, target: Path) -> Distributions:
    """The sdist, and the wheel that is made from it."""
    _build(source, target)
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return Distributions(sdist, wheel)


def build_wheel(source: Path, target: Path) -> Path:
    """The wheel without the detour over an sdist, as the Dockerfile makes it."""
    _build(source, target, "--wheel")
    (wheel,) = target.glob("*.whl")
    return wheel


def _build(source: Path, target: Path, *options: str) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": last_change()}
    command = [sys.executable, "-m", "build", *options, "--outdir", str(target), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
