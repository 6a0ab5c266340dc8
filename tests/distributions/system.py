"""The root file system of a distribution with the checkout in it, kept between runs: its packages are the slow part.

`root.sh` makes the minimal system, `enter.sh` runs commands in a copy of it; `__main__` asks for the outcome.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.distributions.outcome import Outcome, counted

REPOSITORY = Path(__file__).parents[2]
FOLDER = "/srv/kbpf"
KEPT = (".venv", "build")
REPORT = "build/report.xml"
_HERE = Path(__file__).parent
_SCRIPT = """
set -eu
if ! command -v make >/dev/null; then
    apt-get update --quiet=2
    apt-get install --quiet=2 --yes --no-install-recommends make >/dev/null
fi
exec make "$@"
"""
_VERSIONS = """
/usr/bin/python3 --version
/usr/bin/python3 -c 'import bcc; print("BCC", bcc.__version__)'
iptables --version
"""


class NoSystem(Exception):
    """The distribution's archive did not give a root file system; the message is the last that was said."""


@dataclass(frozen=True, slots=True)
class System:
    root: Path

    @classmethod
    def made(cls, release: str) -> "System":
        """The system of a release, with the checkout as it is now."""
        done = subprocess.run([_HERE / "root.sh", release], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoSystem((done.stderr.strip().splitlines() or ["no word"])[-1])
        minimal = REPOSITORY / done.stdout.strip()
        root = minimal.with_name(f"{release}.tests")
        if not root.exists():
            subprocess.run(["cp", "--archive", "--reflink=auto", minimal, root], check=True)
        system = cls(root)
        system._take_checkout()
        return system

    def outcome(self, name: str, target: str, pytest_options: str) -> Outcome:
        """Runs a target of the Makefile in it; what it says is seen as it comes."""
        self._report.unlink(missing_ok=True)
        made = self._enter(["sh", "-c", _SCRIPT, "sh", target], f"--junit-xml={REPORT} {pytest_options}")
        if not self._report.exists():
            return Outcome(name, problem=f"make {target} ended with status {made} before a test ran")
        return counted(name, self._versions(), self._report.read_text(), made)

    @property
    def _report(self) -> Path:
        return self.root / FOLDER.lstrip("/") / REPORT

    def _take_checkout(self) -> None:
        checkout = self.root / FOLDER.lstrip("/")
        checkout.mkdir(parents=True, exist_ok=True)
        for old in checkout.iterdir():
            if old.name not in KEPT:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).exists():
                (checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, checkout / name)

    def _versions(self) -> tuple[str, ...]:
        entered = self._command(["sh", "-c", _VERSIONS])
        said = subprocess.run(entered, capture_output=True, text=True, check=True).stdout
        return tuple(said.splitlines())

    def _enter(self, command: list[str], pytest_options: str) -> int:
        environment = {**os.environ, "PYTEST_ADDOPTS": pytest_options}
        return subprocess.run(self._command(command), env=environment, check=False).returncode

    def _command(self, command: list[str]) -> list[str]:
        return ["unshare", "--mount", str(_HERE / "enter.sh"), str(self.root), FOLDER, *command]
