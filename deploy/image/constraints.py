"""Prints the versions of everything that kbpf needs as they are in this environment: `make image-constraints`."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HEAD = "# The versions in the image: those that the tests ran with. `make image-constraints` writes this file."


def needed_by(name: str, seen: dict[str, str]) -> None:
    """Adds the package and all that it requires here to `seen`, version by name."""
    key = canonicalize_name(name)
    if key in seen:
        return
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return  # Required on other platforms or Pythons only.
    seen[key] = package.version
    for requirement in requirements(package.requires or []):
        needed_by(requirement.name, seen)


def requirements(lines: list[str]) -> Iterator[Requirement]:
    """Those that hold here, without extras."""
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


if __name__ == "__main__":
    versions: dict[str, str] = {}
    needed_by("kbpf", versions)
    del versions["kbpf"]
    print(HEAD, *(f"{name}=={version}" for name, version in sorted(versions.items())), sep="\n")
