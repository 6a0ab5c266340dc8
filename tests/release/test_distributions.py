"""Wheel and sdist as files: complete, the same whichever way they were made, and taken by the package index."""

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kbpf import __version__
from tests.release.building import Distributions, build, build_wheel, copy_sources, tracked

pytestmark = pytest.mark.release


def digest(path: Path) -> tuple[str, str]:
    return path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_sdist_holds_what_git_tracks(distributions: Distributions) -> None:
    top = f"kbpf-{__version__}/"
    with tarfile.open(distributions.sdist) as archive:
        names = {member.name.removeprefix(top) for member in archive.getmembers()}
    assert names == {*tracked(), "PKG-INFO"}


def test_the_wheel_holds_the_package_the_programs_and_the_examples(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    moved = {name if name.startswith("kbpf/") else f"kbpf/{name}" for name in tracked()}
    wanted = {name for name in moved if name.startswith(("kbpf/bpf/", "kbpf/examples/"))}
    assert names == wanted | {name for name in tracked() if name.startswith("kbpf/")}


def test_the_wheel_brings_every_licence(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as archive:
        licences = {name.partition("licenses/")[2] for name in archive.namelist() if "licenses/" in name}
    assert licences == {"LICENSE", "bpf/LICENSE", "bpf/LICENSE.BSD-2-Clause", "bpf/LICENSE.GPL-2.0"}


def test_the_wheel_from_the_checkout_is_the_one_from_the_sdist(
    sources: Path, distributions: Distributions, tmp_path: Path
) -> None:
    assert digest(build_wheel(sources, tmp_path)) == digest(distributions.wheel)


def test_building_again_elsewhere_gives_the_same_bytes(distributions: Distributions, tmp_path: Path) -> None:
    again = build(copy_sources(tmp_path / "sources"), tmp_path / "distributions")
    assert digest(again.sdist) == digest(distributions.sdist)
    assert digest(again.wheel) == digest(distributions.wheel)


def test_the_package_index_would_take_them(distributions: Distributions) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(distributions.sdist), str(distributions.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
