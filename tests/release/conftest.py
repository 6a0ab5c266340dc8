"""What the tests of a release share: its files, built once for all, and an environment that has the wheel alone."""

import subprocess
from pathlib import Path

import pytest

from tests.release.building import Distributions, build, copy_sources


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="session")
def distributions(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(sources, tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="session")
def installed(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel and what it requires."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run(["/usr/bin/python3", "-m", "venv", environment], check=True)
    pip = [environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, distributions.wheel], check=True)
    return environment / "bin"
