"""A test bed: one node, a client pod and a server pod, and the load generator between them.

Each variant has a bed of its own, since a node's rules tax every flow on it, the direct one included.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kbpf.demo.node import Network, Node
from kbpf.demo.place import Place
from kbpf.demo.remains import remove

SOURCE = Path(__file__).with_name("load.c")
SERVER = "10.42.1.10"
PORT = 8080
CPU = "0"
"""Client, server and node share one CPU: the latency is then all the work there is, without the scheduler's noise."""


class Sample(NamedTuple):
    """Nanoseconds an operation."""

    p01: int
    p50: int
    p99: int


@cache
def load_generator() -> str:
    """The compiled load generator. Exits with a line when no compiler is there."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("bench: no C compiler for the load generator: apt-get install gcc libc6-dev")
    target = Path(__file__).parents[2] / "build" / "load"
    target.parent.mkdir(exist_ok=True)
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", target, SOURCE], check=True)
    return str(target)


@dataclass
class Bed:
    """`with Bed("direct") as bed: bed.measure("connect", "10.42.1.10", 8080, 500)`"""

    tag: str
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> "Bed":
        remove(self.tag)
        network = Network(self.tag)
        network.create()
        self.node = Node(network)
        self.node.create()
        self.client = self.node.add_pod("10.42.1.9").place
        self.outside = network.place
        server = self.node.add_pod(SERVER).place
        self._start(server, [load_generator(), "serve", SERVER, str(PORT)]).stdout.readline()  # type: ignore[union-attr]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.communicate()
        remove(self.tag)

    def run_kbpf(self, manifests: Path, datapath: str) -> None:
        """Write everything once; programs and rules need no process to go on."""
        command = [sys.executable, "-m", "kbpf", "--once", f"--manifests={manifests}", f"--datapath={datapath}"]
        command += ["--fallback=none", f"--cgroup-root={self.node.cgroup}", f"--bpffs-root={self.node.bpffs}"]
        command += [f"--hostname-override={self.node.name}", "--cluster-cidr=10.42.0.0/16"]
        self._run(self.node.host, command)

    def is_served(self, address: str, port: int) -> bool:
        command = [load_generator(), "connect", address, str(port), "1"]
        done = subprocess.run(command, preexec_fn=self.client.enter, capture_output=True, text=True, check=False)
        return done.returncode == 0 and done.stdout.split()[:2] == ["1", "0"]

    def measure(self, mode: str, address: str, port: int, operations: int, *, from_outside: bool = False) -> Sample:
        command = ["taskset", "-c", CPU, load_generator(), mode, address, str(port), str(operations)]
        place = self.outside if from_outside else self.client
        done, failures, *quantiles = map(int, self._run(place, command).split())
        if failures or done != operations:
            sys.exit(f"bench: {self.tag}: {mode} {address}: {failures} of {done} operations failed")
        return Sample(*quantiles)

    def _run(self, place: Place, command: Sequence[str]) -> str:
        done = subprocess.run(command, preexec_fn=place.enter, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"bench: {self.tag}: {command[:3]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _start(self, place: Place, command: Sequence[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["taskset", "-c", CPU, *command], preexec_fn=place.enter, stdout=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        return process
