"""Debian's archive, asked through an apt of our own: the machine's apt, its sources and its lists stay as they are."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from vagrant.vm.commands import VmError, pipe, run

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MAIN, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
# What a kernel is made of, without the metapackage that names the newest; modules are split off since 7.x.
_PART = re.compile(r"linux-(image|base|binary|modules)-\d+\.\d+\.\d[^\s:]*")


def site(suite: str) -> str:
    """The host that the machine's own sources use for this kind of suite, or Debian's."""
    is_security = suite.endswith("-security")
    targets = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages")
    for line in targets.splitlines():
        found, release = line.split()
        kind = "/debian-security" if is_security else "/debian"
        if found.rstrip("/").endswith(kind) and release.endswith("-security") == is_security:
            return found
    return SECURITY if is_security else MAIN


@dataclass(frozen=True, slots=True)
class Archive:
    """One suite. `folder` holds its lists; `update()` comes first. `site` "": where the machine has Debian from."""

    folder: Path
    suite: str
    site: str = ""

    def update(self) -> None:
        """Raises VmError when the suite cannot be fetched."""
        where = self.site or site(self.suite)
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        # A state of long ago is signed, but no longer as the newest.
        options = f"arch=amd64 signed-by={KEYRING}" + (" check-valid-until=no" if self.site else "")
        self._sources.write_text(f"deb [{options}] {where} {self.suite} main\n")
        try:
            self._apt("apt-get", "--quiet=2", "--option=APT::Update::Error-Mode=any", "update")
        except VmError as error:
            raise VmError(f"{self.suite} cannot be fetched from {where}") from error

    def parts(self, package: str) -> list[str]:
        """The packages that hold the kernel which `package` names, newest version. Raises VmError if there is none."""
        only = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
        listed = self._apt("apt-cache", "depends", "--recurse", *only, f"{package}:amd64")
        parts = sorted({match[0] for match in _PART.finditer(listed)})
        if not parts:
            raise VmError(f"{package} of {self.suite} leads to no kernel")
        return parts

    def unpack(self, packages: list[str], target: Path) -> None:
        """Below `target`, which is made anew, as they would be installed."""
        shutil.rmtree(target, ignore_errors=True)
        downloads = target / "downloads"
        downloads.mkdir(parents=True)
        (target / "usr/lib").mkdir(parents=True)
        (target / "lib").symlink_to("usr/lib")
        self._apt("apt-get", "--quiet=2", "--option=APT::Sandbox::User=root", "download", *packages, cwd=downloads)
        for package in sorted(downloads.glob("*.deb")):
            # dpkg-deb --extract would put a folder in the place of the link `lib`.
            into = ("tar", "--extract", "--keep-directory-symlink", f"--directory={target}")
            pipe(("dpkg-deb", "--fsys-tarfile", package), into)
        shutil.rmtree(downloads)

    @property
    def _sources(self) -> Path:
        return self.folder / "sources.list"

    def _apt(self, tool: str, *words: str, cwd: Path | None = None) -> str:
        options = {
            "Dir::Etc::sourcelist": self._sources,
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder / "cache",
        }
        return run(tool, *(f"--option={key}={value}" for key, value in options.items()), *words, cwd=cwd)
