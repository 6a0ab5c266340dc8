"""`make bench-iptables`: kbpf's iptables datapath against the real kube-proxy, in pairs, in one run.

Both watch the same API server. Told are the time from start to all rules in force, the time from a change of one
endpoint to its rules (the median of some changes), CPU seconds with all child processes, and the peak of memory with
them. A start with few Services is over so soon that one alone tells little: then it is the median of some, by turns. A
ratio below 1 speaks for kbpf.
"""

import argparse
import compileall
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import kbpf
from kbpf.demo.cgroups import cgroup2_mount, join, remove_tree
from tests.bench.cluster_objects import ENDPOINTS, NODE, NODE_NAME, crowd, teller, teller_slice
from tests.bench.subject import TARGET_PORTS, BenchNode, Subject
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay
from tests.cluster.programs import Program
from tests.cluster.proxies import COMMON, KBPF, iptables_programs, start_kube_proxy

FLAGS = (f"--hostname-override={NODE_NAME}", "--cluster-cidr=10.42.0.0/16,fd42::/16")
PROXIES = ("kube-proxy", "kbpf")
CHANGES = 7
MOST_STARTS, STARTED_SERVICES = 5, 15000
"""So many Services are started with at least, in as many starts as that takes, within reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    start_s: float
    start_cpu_s: float
    change_s: float
    change_cpu_s: float
    memory_mb: float


MEASURES: dict[str, Callable[[Outcome], float]] = {
    "start, s": lambda outcome: outcome.start_s,
    "its CPU, s": lambda outcome: outcome.start_cpu_s,
    "change, ms": lambda outcome: outcome.change_s * 1000,
    "its CPU, ms": lambda outcome: outcome.change_cpu_s * 1000,
    "memory, MB": lambda outcome: outcome.memory_mb,
}


class Bench:
    def __init__(self, folder: Path, stack: ExitStack, timeout_s: float) -> None:
        self.folder, self.timeout_s = folder, timeout_s
        self.control_plane = ControlPlane(folder)
        stack.callback(self.control_plane.stop)
        self.control_plane.api.put([NODE, teller()])
        self.size = 0
        self._runs = 0

    def grow(self, size: int) -> None:
        """Have so many Services in the API server."""
        self.control_plane.api.put(crowd(self.size, size))
        self.size = size

    @property
    def starts(self) -> int:
        return min(MOST_STARTS, max(1, STARTED_SERVICES // self.size))

    def measure(self, proxy: str, flavour: str) -> Outcome:
        self._runs += 1
        self._tell(TARGET_PORTS[0])
        with ExitStack() as stack:
            tag = f"kbpfbench-{self._runs}"
            cgroup = cgroup2_mount() / f"{tag}-{os.getpid()}"
            cgroup.mkdir()
            stack.callback(remove_tree, cgroup)
            node = stack.enter_context(BenchNode(tag))
            start = self._starter(proxy, flavour, node, stack)
            since = time.monotonic()
            program = start()
            stack.callback(program.stop)
            join(cgroup, program.process.pid)
            subject = Subject(node, program, cgroup, self.timeout_s)
            first = subject.wait_for(TARGET_PORTS[0], since)
            changes = []
            for number in range(math.ceil(CHANGES / self.starts)):
                port = TARGET_PORTS[(number + 1) % 2]
                changes.append(subject.wait_for(port, since=self._tell(port)))
            return Outcome(
                first.elapsed_s,
                first.cpu_s,
                statistics.median(change.elapsed_s for change in changes),
                statistics.fmean(change.cpu_s for change in changes),
                subject.memory.peak / 1e6,
            )

    def _starter(self, proxy: str, flavour: str, node: BenchNode, stack: ExitStack) -> Callable[[], Program]:
        log = self.folder / f"{self._runs}-{proxy}.log"
        name = node.namespace.name
        relay = Relay(node.namespace, self.control_plane.port)
        stack.callback(relay.stop)
        kubeconfig = self.control_plane.kubeconfig(relay.port)
        if proxy == "kube-proxy":
            programs = iptables_programs(self.folder, flavour)
            return lambda: start_kube_proxy(log, name, kubeconfig, FLAGS, path=programs)
        flags = [f"--kubeconfig={kubeconfig}", "--datapath=iptables", f"--iptables-backend={flavour}"]
        return lambda: Program(log, [KBPF, *COMMON, *FLAGS, *flags], namespace=name)

    def _tell(self, port: int) -> float:
        """Move the teller's endpoint; returns when that began."""
        since = time.monotonic()
        self.control_plane.api.put([teller_slice(port)])
        return since


def run(sizes: Sequence[int], flavours: Sequence[str], timeout_s: float, say: Callable[[Table], None]) -> None:
    """Say a table for each size and flavour as soon as it is measured."""
    with ExitStack() as stack, Progress(transient=True) as progress:
        bench = Bench(Path(stack.enter_context(tempfile.TemporaryDirectory())), stack, timeout_s)
        task = progress.add_task("", total=len(sizes) * len(flavours) * len(PROXIES))
        for size in sorted(sizes):
            progress.update(task, description=f"creating {size} Services")
            bench.grow(size)
            for flavour in flavours:
                outcomes: dict[str, list[Outcome]] = {proxy: [] for proxy in PROXIES}
                for _, proxy in product(range(bench.starts), PROXIES):
                    progress.update(task, description=f"{size} Services, {flavour}, {proxy}")
                    outcomes[proxy].append(bench.measure(proxy, flavour))
                    progress.advance(task, 1 / bench.starts)
                say(_table(f"{size} Services of {ENDPOINTS} endpoints, {flavour}", outcomes))


def _table(title: str, outcomes: dict[str, list[Outcome]]) -> Table:
    table = Table("", *PROXIES, "ratio", title=title)
    for name, value in MEASURES.items():
        control, own = (statistics.median(map(value, outcomes[proxy])) for proxy in PROXIES)
        table.add_row(name, f"{control:.4g}", f"{own:.4g}", f"{own / control:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, nargs="+", default=[1000, 5000, 10000])
    parser.add_argument("--flavours", nargs="+", choices=("nft", "legacy"), default=["nft", "legacy"])
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that one start may take")
    arguments = parser.parse_args()
    # As it is installed: an editable checkout may have no bytecode, and never gets any with PYTHONDONTWRITEBYTECODE.
    compileall.compile_dir(Path(kbpf.__file__).parent, quiet=1)
    run(arguments.services, arguments.flavours, arguments.timeout, Console().print)


if __name__ == "__main__":
    main()
