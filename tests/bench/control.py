"""`make bench-control`: kbpf's eBPF datapath in a large cluster, beside the real kube-proxy with iptables, in one run.

All watch the same API server. Told are the time from the start of the process to the first connection through the last
Service, its CPU time, the memory that the daemon then holds, and how long after the watch event a change of an endpoint
is seen by a client that connects without a pause. kube-proxy is measured with each kind of iptables, and stopped when
it takes too long; kbpf before and after. The exit status is 1 when a goal is missed.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

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
from tests.bench.control_outcome import Outcome, goals, table
from tests.bench.goal import judge
from tests.bench.slice_watch import SliceWatch
from tests.bench.switch_probe import SwitchProbe
from tests.bench.usage import cpu_s, resident
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay, create_node
from tests.cluster.programs import Program
from tests.cluster.proxies import CAUTION, COMMON, KBPF, iptables_programs, start_kube_proxy

FLAGS = (f"--hostname-override={NODE_NAME}", "--cluster-cidr=10.42.0.0/16,fd42::/16")
PORTS = (7001, 7002)
NFT, LEGACY = "kube-proxy nft", "kube-proxy legacy"
FLAVOURS = {NFT: "nft", LEGACY: "legacy"}
"""Of iptables. Debian takes nft by default; with many Services legacy is faster by far."""
ORDER = ("kbpf", *FLAVOURS, "kbpf")
SETTLE_S = 3.0
"""After the first connection the start goes on for a while, and so does memory."""
PAUSE_S = 0.1
"""Between two changes; a proxy that may sync at any time is not held up by the one before."""


PROXY = "proxy"
"""The cgroup of the proxy and its children, below the one whose sockets it serves."""


class Bench:
    def __init__(self, folder: Path, stack: ExitStack, services: int, changes: int, longest_s: float) -> None:
        self.folder, self.changes, self.longest_s = folder, changes, longest_s
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
            (cgroup / PROXY).mkdir(parents=True)
            stack.callback(remove_tree, cgroup)
            node = create_node(f"{tag}-n1", [f"{NODE_ADDRESS}/24"])
            stack.callback(node.delete)
            node.ip(f"route add {SERVICE_RANGE} dev eth0")
            relay = Relay(node, self.control_plane.port)
            stack.callback(relay.stop)
            probe = SwitchProbe(Place(node.path, str(cgroup)), (TELLER_ADDRESS, TELLER_PORT), NODE_ADDRESS, PORTS)
            stack.callback(probe.close)
            kubeconfig = self.control_plane.kubeconfig(relay.port)
            probe.begin(PORTS[0], self.longest_s)
            started = time.monotonic()
            program = self._start(proxy, tag, node.name, cgroup, kubeconfig, stack)
            arrived = probe.arrived()
            start_s = (arrived or time.monotonic()) - started
            time.sleep(SETTLE_S)
            used_s, held_mb = cpu_s(cgroup / PROXY), resident(program.process.pid) / 1e6
            changes = self._change(probe, self.changes if proxy == "kbpf" else self.changes // 10) if arrived else ()
            return Outcome(start_s, used_s, held_mb, changes, is_over=arrived is not None)

    def _start(self, proxy: str, tag: str, namespace: str, cgroup: Path, kubeconfig: Path, stack: ExitStack) -> Program:
        log = self.folder / f"{tag}.log"
        if proxy in FLAVOURS:
            programs = iptables_programs(self.folder, FLAVOURS[proxy])
            program = start_kube_proxy(log, namespace, kubeconfig, FLAGS, path=programs)
        else:
            pins = BPFFS / tag
            stack.callback(shutil.rmtree, pins, ignore_errors=True)
            own = ["--datapath=ebpf", "--fallback=none", f"--cgroup-root={cgroup}", f"--bpffs-root={pins}"]
            flags = [f"--kubeconfig={kubeconfig}", *own, *COMMON, *CAUTION, *FLAGS]
            program = Program(log, [KBPF, *flags], namespace=namespace)
        stack.callback(program.stop)
        join(cgroup / PROXY, program.process.pid)
        return program

    def _change(self, probe: SwitchProbe, count: int) -> list[float]:
        """Milliseconds from the watch event to the first connection that arrives at the new endpoint."""
        watch = SliceWatch(self.control_plane, "teller")
        latencies = []
        for number in range(count):
            port = PORTS[(number + 1) % 2]
            probe.begin(port, self.longest_s)
            self.api.put([teller_slice(port)])
            told = watch.told_of(port)
            arrived = probe.arrived()
            if arrived is None:
                sys.exit(f"bench: a change was not in force after {self.longest_s:.0f} s")
            latencies.append((arrived - told) * 1000)
            time.sleep(PAUSE_S)
        return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10000)
    # kube-proxy rests for a second between two syncs, so each change costs that.
    parser.add_argument("--changes", type=int, default=200, help="of one endpoint; a tenth of them for kube-proxy")
    parser.add_argument("--order", nargs="+", choices=("kbpf", *FLAVOURS), default=ORDER)
    parser.add_argument("--longest", type=float, default=300, help="seconds after which a start is given up")
    arguments = parser.parse_args()
    console = Console()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(folder, stack, arguments.services, arguments.changes, arguments.longest)
        outcomes = []
        for proxy in arguments.order:
            outcomes.append((proxy, bench.measure(proxy)))
            console.print(f"{proxy}: {outcomes[-1][1].start_s:.2f} s, at a load of {os.getloadavg()[0]:.0f}")
        console.print(table(f"{arguments.services} Services of {ENDPOINTS} endpoints", outcomes))
    judge(goals(outcomes), console)


if __name__ == "__main__":
    main()
