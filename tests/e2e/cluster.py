"""The whole cluster, from nothing to ready nodes, and away again."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbpf.demo.cgroups import find_cgroups, remove_tree
from tests.cluster.programs import ProgramFailed
from tests.e2e import images, machine, network, packages
from tests.e2e.certificates import Certificates
from tests.e2e.control_plane import ControlPlane
from tests.e2e.engines import RunningProxies
from tests.e2e.folder import Folder
from tests.e2e.network import NodeAddresses
from tests.e2e.node import Node
from tests.progress import say, step

READY_TIMEOUT_S = 180
ZONES = 3
DEPLOY = Path(__file__).parents[2] / "deploy/kubernetes/base"
# kubelet and containerd make them on the machine, empty; a directory with something in it is somebody else's.
LEFT_ON_THE_MACHINE = (
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
    "/usr/libexec/kubernetes/kubelet-plugins/volume",
    "/usr/libexec/kubernetes/kubelet-plugins",
    "/usr/libexec/kubernetes",
    "/opt/containerd/lib",
    "/opt/containerd/bin",
    "/opt/containerd",
)


class Cluster:
    def __init__(self, folder: Folder, node_count: int, archives: Sequence[Path] = ()) -> None:
        """`archives` of images that the nodes import besides those of the tests."""
        self.folder = folder
        self.archives = archives
        self.addresses = [NodeAddresses(number) for number in range(1, node_count + 1)]
        self.certificates = Certificates(folder.cluster / "certificates")
        self.control_plane = ControlPlane(folder, self.certificates)
        self.nodes = [Node(addresses, folder, self.certificates) for addresses in self.addresses]
        self.proxies: RunningProxies

    def start(self) -> None:
        packages.unpack_runtime(self.folder)
        packages.build_pod_system(self.folder)
        archives = [*images.make_images(self.folder), *self.archives]
        with step("removing the files of the cluster before"):
            self.folder.begin_cluster()
        with step(f"starting the control plane and {len(self.nodes)} nodes"):
            self.certificates.create(self.addresses)
            network.create(self.addresses)
            for node in self.nodes:
                node.start(archives)
            self.control_plane.start()
            self._wait_for_nodes()
            self.control_plane.start_dns()
        self.proxies = RunningProxies(self.nodes, self._own_account())

    def stop(self) -> None:
        """Safe at any moment, also half-way through `start`."""
        say("taking the cluster away")
        if hasattr(self, "proxies"):
            self.proxies.stop()
        for node in self.nodes:
            node.stop()
        self.control_plane.stop()
        remove_remains()

    def check(self) -> None:
        """Raises ProgramFailed when a program of the cluster has ended."""
        for node in self.nodes:
            node.check()
        for program in self.control_plane.programs:
            program.check()
        self.proxies.check()

    def _wait_for_nodes(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self._ready_nodes() < len(self.nodes):
            for node in self.nodes:
                node.check()
            if time.monotonic() > deadline:
                raise ProgramFailed(
                    f"{self._ready_nodes()} of {len(self.nodes)} nodes are ready: see {self.folder.logs}"
                )
            time.sleep(0.5)
        for node in self.nodes:
            zone = f"z{(node.addresses.number - 1) % ZONES + 1}"
            self.control_plane.kubectl("label", "node", node.name, f"topology.kubernetes.io/zone={zone}")

    def _ready_nodes(self) -> int:
        conditions = [
            condition
            for node in self.control_plane.get("nodes")["items"]
            for condition in node["status"].get("conditions", [])
        ]
        return sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def _own_account(self) -> Path:
        """The service account of `deploy/`, with exactly its rights; and kube-proxy's, which every cluster has."""
        binding = ("create", "clusterrolebinding", "kube-proxy", "--clusterrole=system:node-proxier")
        self.control_plane.kubectl(*binding, "--user=system:kube-proxy")
        for manifest in ("service-account.yaml", "rbac.yaml"):
            self.control_plane.kubectl("apply", f"--filename={DEPLOY / manifest}")
        token = self.control_plane.kubectl("create", "token", "kbpf", "--namespace=kube-system", "--duration=24h")
        return self.certificates.write_token_kubeconfig("kbpf", token.strip())


class MachineChanged(ProgramFailed):
    """The cluster is gone, and the machine holds something that it did not hold before, or lacks something."""


@contextmanager
def running_cluster(folder: Folder, node_count: int, archives: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Raises MachineChanged at its end."""
    remove_remains()
    before = machine.contents(folder.root)
    cluster = Cluster(folder, node_count, archives)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
    changed = before ^ machine.contents(folder.root)
    if changed:
        raise MachineChanged(f"the machine is not as before: {'; '.join(sorted(changed))}")
    say("namespaces, cgroups, pins, devices, rules and processes are as before")


def remove_remains() -> None:
    """What a crashed run may have left: processes, found by their cgroups, cgroups, namespaces, directories."""
    for cgroup in find_cgroups(f"{network.PREFIX}-"):
        remove_tree(cgroup)
    network.remove()
    for directory in map(Path, LEFT_ON_THE_MACHINE):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
