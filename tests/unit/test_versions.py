"""The version has one place, kbpf/__init__.py. What must repeat it, for other programs to read, is compared here."""

import tomllib
from pathlib import Path

import yaml

from kbpf import __version__

REPOSITORY = Path(__file__).parents[2]


def test_the_package_takes_it_from_the_code() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "kbpf/__init__.py"}


def test_the_manifests_name_the_image_of_this_version() -> None:
    base = yaml.safe_load((REPOSITORY / "deploy/kubernetes/base/kustomization.yaml").read_text())
    assert [image["newTag"] for image in base["images"]] == [__version__]


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((REPOSITORY / "deploy/helm/kbpf/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
