"""kbpf's own image as an archive: the root file system of `make image-rootfs`, started as deploy/Dockerfile says.

Two builds in one archive: the one that deploy/kubernetes names, and a newer one, which calls itself by another version
and whose programs are others to kbpf: it must compile them and put them in the place of those in force.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from kbpf import __version__
from tests.cluster.programs import ProgramFailed
from tests.e2e.archive import Image, layer_of_files, layer_of_tree, write_archive
from tests.e2e.dockerfile import DOCKERFILE, settings
from tests.e2e.folder import Folder
from tests.progress import step

REPOSITORY = Path(__file__).parents[2]
ROOTFS = REPOSITORY / "build/rootfs"
BASE = REPOSITORY / "deploy/kubernetes/base/kustomization.yaml"
NEWER_VERSION = f"{__version__}.post1"
PROGRAMS = ("bpf/sock.c", "bpf/tc.c")


@dataclass(frozen=True, slots=True)
class Build:
    version: str
    name: str
    """Repository and tag."""


def builds() -> tuple[Build, Build]:
    """The current one, by the name that the manifests have for it, and the newer one."""
    (image,) = yaml.safe_load(BASE.read_text())["images"]
    repository, tag = image["newName"], image["newTag"]
    return Build(__version__, f"{repository}:{tag}"), Build(NEWER_VERSION, f"{repository}:{tag}.post1")


def make_own_archive(folder: Folder) -> Path:
    """Made anew when the root file system, the Dockerfile or this module has changed."""
    archive = folder.images / "kbpf.tar"
    made_from = archive.with_suffix(".made-from")
    wanted = _fingerprint()
    if archive.exists() and made_from.exists() and made_from.read_text() == wanted:
        return archive
    with step("making kbpf's image"):
        folder.images.mkdir(exist_ok=True)
        system = layer_of_tree(folder.images / "kbpf.layer", ROOTFS)
        change = layer_of_files(folder.images / "kbpf-newer.layer", newer_files(ROOTFS))
        how = settings(DOCKERFILE.read_text())
        current, newer = builds()
        images = [Image((current.name,), how, (system,)), Image((newer.name,), how, (system, change))]
        write_archive(archive, images)
        for layer in (system, change):
            layer.path.unlink()
        made_from.write_text(wanted)
    return archive


def newer_files(rootfs: Path) -> dict[str, str]:
    """What the newer build has of its own, by path."""
    return {str(path.relative_to(rootfs)): text for path, text in _changes(rootfs)}


def _changes(rootfs: Path) -> Iterator[tuple[Path, str]]:
    (package,) = rootfs.glob("opt/kbpf/lib/python3*/site-packages/kbpf")
    version = package / "__init__.py"
    old, new = f'"{__version__}"', f'"{NEWER_VERSION}"'
    if version.read_text().count(old) != 1:
        raise ProgramFailed(f"{version} does not say that it is version {__version__}")
    yield version, version.read_text().replace(old, new)
    # Python takes byte code that is named by content without a look at the source.
    for compiled in (package / "__pycache__").glob("__init__.*.pyc"):
        yield compiled.with_name(f".wh.{compiled.name}"), ""
    for program in PROGRAMS:
        yield package / program, f"{(package / program).read_text()}\n/* Version {NEWER_VERSION}. */\n"


def _fingerprint() -> str:
    made_from = ROOTFS.with_name(f"{ROOTFS.name}.made-from")
    if not made_from.exists():
        raise ProgramFailed(f"{ROOTFS} does not exist: `make image-rootfs` builds it")
    texts = [path.read_bytes() for path in (made_from, DOCKERFILE, BASE, Path(__file__))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
