"""One node: a process tree in namespaces of its own, with containerd, a kubelet, and later a service proxy.

The first process is `node/init.sh`; ending it ends everything on the node.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from string import Template

from kbpf.demo.cgroups import cgroup2_mount, remove_tree
from tests.cluster.programs import Program, built
from tests.e2e.certificates import Certificates
from tests.e2e.control_plane import DNS_ADDRESS
from tests.e2e.folder import Folder
from tests.e2e.images import PAUSE
from tests.e2e.network import CLUSTER_CIDR, CONTROL_ADDRESS, PREFIX, NodeAddresses

TEMPLATES = Path(__file__).with_name("node")
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup")


class Node:
    def __init__(self, addresses: NodeAddresses, folder: Folder, certificates: Certificates) -> None:
        self.addresses = addresses
        self.name = addresses.name
        self.folder = folder
        self.state = folder.node(self.name)
        self.certificates = certificates
        self.cgroup = cgroup2_mount() / f"{PREFIX}-{self.name}"
        self._program: Program | None = None

    def start(self, archives: Sequence[Path]) -> None:
        """Returns at once; the Node object turns ready when images are imported and kubelet runs."""
        self._furnish(archives)
        self.cgroup.mkdir(exist_ok=True)
        init = [TEMPLATES / "init.sh", self.name, self.state, self.folder.system, built("kubelet")]
        unshare = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child", *init]
        # A cgroup namespace begins where its first process stands.
        enter = f"echo $$ >{self.cgroup / 'cgroup.procs'}; exec {shlex.join(map(str, unshare))}"
        self._program = Program(
            self.folder.logs / f"{self.name}.log", ["sh", "-c", enter], namespace=self.addresses.namespace.name
        )
        self.folder.record(self._program.process.pid, self.name)

    def stop(self) -> None:
        if self._program:
            self._program.process.kill()
            self._program.process.wait()
            self._program = None
        remove_tree(self.cgroup)

    def check(self) -> None:
        """Raises ProgramFailed when containerd or kubelet has ended."""
        assert self._program, f"{self.name} was not started"
        self._program.check()

    # -- inside ------------------------------------------------------------------------------------------------------

    def command(self, *arguments: str | Path) -> list[str]:
        """A command as the node runs it, in all of its namespaces."""
        assert self._program, f"{self.name} was not started"
        (first,) = children(self._program.process.pid)
        return ["nsenter", f"--target={first}", *NAMESPACES, "--", *map(str, arguments)]

    def run(self, *arguments: str | Path, check: bool = True) -> str:
        """What it printed, errors included. Raises CalledProcessError when it fails and `check` is set."""
        done = subprocess.run(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if check and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout)
        return done.stdout

    def proxy_configuration(self, mode: str) -> Path:
        path = self.state / f"proxy-{mode}.yaml"
        kubeconfig = self.certificates.kubeconfig("kube-proxy")
        self._write(path, "proxy.yaml", mode=mode, cluster_cidr=CLUSTER_CIDR, kubeconfig=kubeconfig)
        return path

    # -- files -------------------------------------------------------------------------------------------------------

    def _furnish(self, archives: Sequence[Path]) -> None:
        state, certificates = self.state, self.certificates
        (state / "cni").mkdir(parents=True)
        (state / "images").mkdir()
        for archive in archives:
            (state / "images" / archive.name).symlink_to(archive)
        shutil.copy(certificates.kubeconfig(self.name), state / "kubeconfig")
        (state / "addresses").write_text(f"{self.addresses.v4},{self.addresses.v6}")
        (state / "resolv.conf").write_text(f"nameserver {CONTROL_ADDRESS}\n")
        self._write(state / "containerd.toml", "containerd.toml", pause=PAUSE, system=self.folder.system, state=state)
        self._write(
            state / "kubelet.yaml",
            "kubelet.yaml",
            authority=certificates.authority,
            certificate=certificates.certificate(self.name),
            key=certificates.key(self.name),
            dns=DNS_ADDRESS,
        )
        pods = {"pods_v4": self.addresses.pods_v4, "pods_v6": self.addresses.pods_v6}
        self._write(state / "cni" / "10-e2e.conflist", "cni.conflist", **pods)

    def _write(self, path: Path, template: str, **values: str | Path) -> None:
        path.write_text(Template((TEMPLATES / template).read_text()).substitute(values, name=self.name))


class NodeProgram(Program):
    """A program on a node. `nsenter` waits for it and passes no signal on, so signals go to the program itself."""

    def __init__(self, log: Path, node: Node, arguments: Sequence[str | Path]) -> None:
        super().__init__(log, node.command("setpriv", "--pdeathsig=KILL", "--", *arguments))
        node.folder.record(self.process.pid, log.stem)

    def signal(self, number: signal.Signals) -> None:
        for pid in children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
