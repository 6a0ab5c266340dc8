"""`make bench-control`: kbpf's eBPF datapath in a large cluster, beside the real kube-proxy with iptables, in one run.

Both watch the same API server. Told are the time from the start of the process to the first connection through the last
Service, its CPU time, the memory that the daemon then holds, and how long after the watch event a change of an endpoint
is seen by a client that connects without a pause. kbpf is measured before and after kube-proxy.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kbpf.demo.cgroups import cgroup2_mount, join, remove_tree
from kbpf.demo.place import Place
from kbpf.demo.remains import BPFFS
from tests.bench.cluster_objects import (
    ENDPOINTS,
    NODE,
    NODE_ADDRESS,
    NODE_NAME,
    SERVICE_RANGE,
    TELLER_ADDRESS,
    TELLER_PORT,
    crowd,
    teller,
    teller_slice,
)
from tests.bench.slice_watch import SliceWatch
from tests.bench.switch_probe import SwitchProbe
from tests.bench.usage import cpu_s, resident
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay, create_node
from tests.cluster.programs import Program
from tests.cluster.proxies import CAUTION, COMMON, KBPF, iptables_programs, start_kube_proxy

FLAGS = (f"--hostname-override={NODE_NAME}", "--cluster-cidr=10.42.0.0/16,fd42::/16")
PORTS = (7001, 7002)
ORDER = ("kbpf", "kube-proxy", "kbpf")
SETTLE_S = 3.0
"""After the first connection the start goes on for a while, and so does memory."""
PAUSE_S = 0.1
"""Between two changes; a proxy that may sync at any time is not held up by the one before."""


@dataclass(frozen=True, slots=True)
class Outcome:
    start_s: float
    cpu_s: float
    resident_mb: float
    changes_ms: Sequence[float]

    def change_ms(self, share: float) -> float:
        return sorted(self.changes_ms)[min(len(self.changes_ms) - 1, int(share * len(self.changes_ms)))]


MEASURES: dict[str, Callable[[Outcome], float]] = {
    "start, s": lambda outcome: outcome.start_s,
    "its CPU, s": lambda outcome: outcome.cpu_s,
    "resident, MB": lambda outcome: outcome.resident_mb,
    "change, median, ms": lambda outcome: outcome.change_ms(0.5),
    "change, p99, ms": lambda outcome: outcome.change_ms(0.99),
}


class Bench:
    def __init__(self, folder: Path, stack: ExitStack, services: int, changes: dict[str, int], flavour: str) -> None:
        self.folder, self.changes, self.flavour = folder, changes, flavour
        self.control_plane = ControlPlane(folder)
        stack.callback(self.control_plane.stop)
        self.api = self.control_plane.api
        self.api.put([NODE, *crowd(0, services), teller(), teller_slice(PORTS[0])])
        self._runs = 0

    def measure(self, proxy: str) -> Outcome:
        self._runs += 1
        tag = f"kbpfbench{os.getpid()}_{self._runs}"
        self.api.put([teller_slice(PORTS[0])])
        with ExitStack() as stack:
            cgroup = cgroup2_mount() / tag
            cgroup.mkdir()
            stack.callback(remove_tree, cgroup)
            node = create_node(f"{tag}-n1", [f"{NODE_ADDRESS}/24"])
            stack.callback(node.delete)
            node.ip(f"route add {SERVICE_RANGE} dev eth0")
            relay = Relay(node, self.control_plane.port)
            stack.callback(relay.stop)
            probe = SwitchProbe(Place(node.path, str(cgroup)), (TELLER_ADDRESS, TELLER_PORT), NODE_ADDRESS, PORTS)
            stack.callback(probe.close)
            kubeconfig = self.control_plane.kubeconfig(relay.port)
            probe.begin(PORTS[0])
            started = time.monotonic()
            program = self._start(proxy, tag, node.name, cgroup, kubeconfig, stack)
            start_s = probe.arrived() - started
            time.sleep(SETTLE_S)
            used_s = cpu_s(program.process.pid)
            changes = self._change(probe, self.changes[proxy])
            return Outcome(start_s, used_s, resident(program.process.pid) / 1e6, changes)

    def _start(self, proxy: str, tag: str, namespace: str, cgroup: Path, kubeconfig: Path, stack: ExitStack) -> Program:
        log = self.folder / f"{tag}-{proxy}.log"
        if proxy == "kube-proxy":
            programs = iptables_programs(self.folder, self.flavour)
            program = start_kube_proxy(log, namespace, kubeconfig, FLAGS, path=programs)
        else:
            pins = BPFFS / tag
            stack.callback(shutil.rmtree, pins, ignore_errors=True)
            own = ["--datapath=ebpf", "--fallback=none", f"--cgroup-root={cgroup}", f"--bpffs-root={pins}"]
            arguments = [KBPF, f"--kubeconfig={kubeconfig}", *own, *COMMON, *CAUTION, *FLAGS]
            program = Program(log, arguments, namespace=namespace)
        stack.callback(program.stop)
        join(cgroup, program.process.pid)
        return program

    def _change(self, probe: SwitchProbe, count: int) -> list[float]:
        """Milliseconds from the watch event to the first connection that arrives at the new endpoint."""
        watch = SliceWatch(self.control_plane, "teller")
        latencies = []
        for number in range(count):
            port = PORTS[(number + 1) % 2]
            probe.begin(port)
            self.api.put([teller_slice(port)])
            told = watch.told_of(port)
            latencies.append((probe.arrived() - told) * 1000)
            time.sleep(PAUSE_S)
        return latencies


def table(title: str, outcomes: Sequence[tuple[str, Outcome]]) -> Table:
    made = Table("", *(proxy for proxy, _ in outcomes), "ratio", title=title)
    for name, value in MEASURES.items():
        own = [value(outcome) for proxy, outcome in outcomes if proxy == "kbpf"]
        control = [value(outcome) for proxy, outcome in outcomes if proxy == "kube-proxy"]
        ratio = sum(own) / len(own) / (sum(control) / len(control))
        made.add_row(name, *(f"{value(outcome):.4g}" for _, outcome in outcomes), f"{ratio:.2f}")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10000)
    parser.add_argument("--changes", type=int, default=200, help="of one endpoint; a tenth of them for kube-proxy")
    parser.add_argument("--order", nargs="+", choices=("kbpf", "kube-proxy"), default=ORDER)
    parser.add_argument(
        "--flavour",
        choices=("legacy", "nft"),
        default="legacy",
        help="of kube-proxy's iptables; legacy is faster",
    )
    arguments = parser.parse_args()
    console = Console()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # It rests for a second between two syncs, so each of them costs that.
        changes = {"kbpf": arguments.changes, "kube-proxy": max(1, arguments.changes // 10)}
        bench = Bench(folder, stack, arguments.services, changes, arguments.flavour)
        outcomes = []
        for proxy in arguments.order:
            outcomes.append((proxy, bench.measure(proxy)))
            console.print(f"{proxy}: {outcomes[-1][1].start_s:.2f} s to the last Service")
        console.print(table(f"{arguments.services} Services of {ENDPOINTS} endpoints", outcomes))


if __name__ == "__main__":
    main()
