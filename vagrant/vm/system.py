"""The root file system that all machines boot: Debian 12, what scripts/setup.sh asks for, and a finished .venv.

Machines have no network. `make setup` inside finds everything in place, because the .venv was made from the same
pyproject.toml, for the same folder and by the same interpreter.
"""

import hashlib
import json
import os
import shutil
import tomllib
from pathlib import Path

from tests.progress import step
from vagrant.vm import checkout, disk
from vagrant.vm.archive import site
from vagrant.vm.commands import run
from vagrant.vm.folder import Folder

RELEASE = "bookworm"
HOME = "srv/kbpf"
GUEST = Path(__file__).parents[1] / "guest"
PROGRAMS = ("init", "without-bpf")
SPARE_BYTES = 512 << 20
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_NOT_NEEDED = "path-exclude=/usr/share/{doc,man,locale}/*"


def build(folder: Folder) -> None:
    """The image of it, made anew when something that it was made from has changed."""
    wanted = _fingerprint()
    made_from = folder.root / "system.made-from"
    if folder.image.exists() and made_from.exists() and made_from.read_text() == wanted:
        return
    made_from.unlink(missing_ok=True)
    tree = folder.system
    with step(f"installing Debian {RELEASE} for the machines (a minute or two)"):
        shutil.rmtree(tree, ignore_errors=True)
        include = f"--include={','.join(packages())}"
        source = f"deb {site(RELEASE)} {RELEASE} main"
        run("mmdebstrap", "--quiet", "--variant=minbase", f"--dpkgopt={_NOT_NEEDED}", include, RELEASE, tree, source)
    with step("making their .venv"):
        _make_environment(tree)
    with step("making their disk"):
        for name in PROGRAMS:
            shutil.copy(GUEST / name, tree / f"usr/sbin/kbpf-{name}")
        (tree / "usr/sbin/kbpf-init").chmod(0o755)
        (tree / "usr/lib/modules").mkdir(exist_ok=True)
        disk.make(tree, folder.image, SPARE_BYTES)
        shutil.rmtree(tree)
    made_from.write_text(wanted)


def packages() -> list[str]:
    lines = (GUEST / "packages.txt").read_text().splitlines()
    own = [line for line in lines if line and not line.startswith("#")]
    return own + run(checkout.ROOT / "scripts/setup.sh", "--list").split()


def _make_environment(tree: Path) -> None:
    home = tree / HOME
    home.mkdir()
    source = tree / "tmp/source.tar"
    checkout.pack(source, ())
    run("tar", "--extract", f"--file={source}", f"--directory={home}")
    # The machine's way to the package index: its name servers, and the authorities that it trusts.
    shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
    authorities = shutil.copy(AUTHORITIES, tree / "tmp")
    inside = {"PATH": os.environ["PATH"], "HOME": "/root", "PIP_CERT": f"/tmp/{Path(authorities).name}"}  # noqa: S108
    run("chroot", tree, f"/{HOME}/scripts/setup.sh", env=inside)
    for path in home.iterdir():
        if path.is_dir() and path.name != ".venv":
            shutil.rmtree(path)
    shutil.rmtree(tree / "tmp")
    (tree / "tmp").mkdir()


def _fingerprint() -> str:
    """Of everything that goes into it. Of pyproject.toml that is what scripts/setup.sh makes a .venv from."""
    project = tomllib.loads((checkout.ROOT / "pyproject.toml").read_text())
    content = hashlib.sha256(json.dumps([RELEASE, project["build-system"], project["project"]]).encode())
    guest = [GUEST / name for name in ("packages.txt", *PROGRAMS)]
    for path in (checkout.ROOT / "scripts/setup.sh", *guest, Path(__file__)):
        content.update(path.read_bytes())
    return content.hexdigest()
