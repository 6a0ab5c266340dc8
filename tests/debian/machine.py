"""A machine with the Debian package: a copy of a minimal root file system, what dpkg and apt do in it, and kbpf on it.

The tests of the package use it. kbpf runs with the rights that the unit file gives, in namespaces of a test's world.
"""

import re
import subprocess
from pathlib import Path

from kbpf.demo.proxy import Proxy
from tests.kernel.world import World

REPOSITORY = Path(__file__).parents[2]
CONTAIN = REPOSITORY / "tests/image/contain.sh"
UNIT = REPOSITORY / "deploy/systemd/kbpf.service"
RUNTIME_FOLDERS = ("var/cache", "var/log", "var/lib/apt", "var/lib/dpkg", "tmp", "run", "proc", "sys", "dev")


class Machine:
    """The root file system below `root`."""

    def __init__(self, root: Path, package: Path) -> None:
        self.root, self.package = root, package

    def run(self, *command: str, network: Path | None = None) -> str:
        """Runs a command in it, among processes of its own, and in a network namespace of its own or in `network`.
        Fails with what the command said."""
        enter = ["unshare", "--net"] if network is None else ["nsenter", f"--net={network}"]
        alone = ["unshare", "--fork", "--pid", f"--mount-proc={self.root}/proc", "chroot", str(self.root)]
        return _run([*enter, *alone, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", *command])

    def install_dependencies(self) -> None:
        """What the package asks for, from the distribution. Only this needs the network."""
        wanted = _run(["dpkg-deb", "--field", str(self.package), "Depends"]).strip()
        apt = ["chroot", str(self.root), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet=2", "--yes"]
        _run([*apt, "update"])
        _run([*apt, "satisfy", "--no-install-recommends", wanted])

    def install(self) -> None:
        copy = self.root / "tmp" / self.package.name
        copy.write_bytes(self.package.read_bytes())
        self.run("dpkg", "--install", f"/tmp/{self.package.name}")

    def files(self) -> set[str]:
        """Every path, without what running programs and dpkg itself write."""
        listed = _run(["find", str(self.root), "-xdev", "-printf", "%P\\n"]).splitlines()
        return {name for name in listed if not name.startswith(RUNTIME_FOLDERS)}


class PackagedProxy(Proxy):
    """The installed command as the unit starts it, in the namespaces of `world`. The manifests lie in /tmp/config."""

    def __init__(self, world: World, machine: Machine, manifests: Path, log: Path, *options: str) -> None:
        super().__init__(world.node, Path("/tmp/config"), log, *options)
        self._contain = [str(CONTAIN), str(machine.root), "all", str(manifests)]

    def _command(self, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
        enter = ["nsenter", f"--net={self.node.namespace.path}", "unshare", "--mount", *self._contain]
        bounding = "".join(f",+{right.removeprefix('CAP_').lower()}" for right in rights_of_the_unit())
        limits = ["setpriv", f"--bounding-set=-all{bounding}", "--no-new-privs"]
        roots = ["--cgroup-root", str(self.node.cgroup), "--bpffs-root", str(self.node.bpffs)]
        return [*enter, *limits, "/usr/sbin/kbpf", *arguments, *roots, *options]

    def ask(self, *arguments: str) -> str:
        """What another command of kbpf prints there."""
        return _run(self._command(arguments=arguments))


def rights_of_the_unit() -> list[str]:
    (line,) = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    return line.split()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
