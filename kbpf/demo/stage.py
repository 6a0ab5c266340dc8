"""The toy node of one demo: the pods of a scene with their echo servers, a client pod, and a folder for files.

run.py builds it, runs kbpf on it and takes it down. With `--keep` it is left standing, and `--remove` finds it by the
prefix of its tag.
"""

import os
import shutil
from pathlib import Path

from kbpf.demo.client import Client
from kbpf.demo.echo import EchoServer, Listener
from kbpf.demo.node import Network, Node
from kbpf.demo.proxy import Proxy
from kbpf.demo.remains import remove, tags
from kbpf.demo.scene import read_scene, write

PREFIX = "kbpfdemo"
FILES = Path("/run")
CLIENT = ("10.42.1.100", "fd42:1::100")
CLUSTER_RANGES = "10.42.0.0/16,fd42::/16"


class Stage:
    """Plays a directory of manifests; works on a copy of it."""

    def __init__(self, manifests: Path) -> None:
        self.tag = f"{PREFIX}{os.getpid()}"
        self.scene = read_scene(manifests)
        self.node = Node(Network(self.tag))
        self.files = FILES / self.tag
        self.manifests = self.files / "manifests"
        self.log = self.files / "kbpf.log"
        self._original = manifests

    def create(self) -> None:
        self.manifests.mkdir(mode=0o700, parents=True)
        self.restore_manifests()
        self.node.network.create()
        self.node.create()
        self.client = Client(self.node.add_pod(*CLIENT).place)
        pods = [self.node.add_pod(*addresses) for addresses in self.scene.pods.values()]
        places = {address: pod.place for pod in pods for address in pod.addresses}
        listeners = {
            Listener(places[address], address, port, frontend.protocol)
            for frontend in self.scene.frontends
            for address, port in frontend.backends
        }
        self.servers = EchoServer(sorted(listeners, key=lambda listener: listener.name))

    def restore_manifests(self) -> None:
        for manifest in self._original.glob("*.yaml"):
            write(self.manifests / manifest.name, manifest.read_text())

    def proxy(self, *options: str) -> Proxy:
        return Proxy(self.node, self.manifests, self.log, "--cluster-cidr", CLUSTER_RANGES, *options)


def take_down(tag: str) -> None:
    """Remove a demo by its tag, also one that another process left. Safe to call twice."""
    remove(tag)
    shutil.rmtree(FILES / tag, ignore_errors=True)


def abandoned() -> list[str]:
    """The tags of demos whose process is gone: kept ones, and what a killed one left."""
    return [tag for tag in tags(PREFIX) if not Path("/proc", tag.removeprefix(PREFIX)).exists()]
