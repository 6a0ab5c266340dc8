"""Kernels at hand: what a machine boots, made once out of the archive's packages."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.progress import step
from vagrant.vm import disk, initrd
from vagrant.vm.archive import Archive
from vagrant.vm.commands import VmError, run
from vagrant.vm.folder import Folder
from vagrant.vm.kernels import Kernel


@dataclass(frozen=True, slots=True)
class Installed:
    version: str
    image: Path
    initrd: Path
    modules: Path
    """A disk with what belongs into /usr/lib/modules."""


def install(folder: Folder, kernel: Kernel, *, is_update: bool = False) -> Installed:
    """Fetched if it is not there, or if `is_update` and the archive has a newer one."""
    suite = f"{kernel.suite}-{kernel.name}" if kernel.site else kernel.suite
    target = folder.kernel(suite, kernel.package)
    origin = target / "made-from"
    source = " ".join(filter(None, (kernel.site, kernel.suite, kernel.package, initrd.fingerprint())))
    known = origin.read_text().splitlines() if origin.exists() else []
    if known[:1] == [source] and not is_update:
        return _found(target)
    with step(f"{kernel.name}: fetching {kernel.package} of {kernel.suite}"):
        archive = Archive(folder.archive / suite, kernel.suite, kernel.site)
        archive.update()
        parts = archive.parts(kernel.package)
        if known == [source, *parts]:
            return _found(target)
        tree = target.with_name("unfinished")
        archive.unpack(parts, tree)
        _finish(tree)
        (tree / "made-from").write_text("\n".join([source, *parts]))
        shutil.rmtree(target, ignore_errors=True)
        tree.rename(target)
    return _found(target)


def _finish(tree: Path) -> None:
    versions = [path.name for path in (tree / "usr/lib/modules").iterdir()]
    if len(versions) != 1:
        raise VmError(f"expected the modules of one kernel, got {versions}")
    version = versions[0]
    run("depmod", "-b", tree, version)
    initrd.make(tree, version, tree / "initrd.gz")
    disk.make(tree / "usr/lib/modules", tree / "modules.img")
    places = (tree / f"boot/vmlinuz-{version}", tree / f"usr/lib/modules/{version}/vmlinuz")
    image = next((place for place in places if place.exists()), None)
    if image is None:
        raise VmError(f"no kernel image in {version}")
    image.rename(tree / "vmlinuz")
    (tree / "version").write_text(version)
    for name in ("usr", "boot", "etc"):
        shutil.rmtree(tree / name, ignore_errors=True)
    (tree / "lib").unlink()


def _found(target: Path) -> Installed:
    version = (target / "version").read_text()
    return Installed(version, target / "vmlinuz", target / "initrd.gz", target / "modules.img")
