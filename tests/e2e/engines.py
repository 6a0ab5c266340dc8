"""The service proxies under test: how each starts on a node, and how it is taken away so that nothing of it is left.

A run is worth nothing when another proxy's rules are still there: `assert_clean` looks before each.
"""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.programs import ProgramFailed, built
from tests.e2e.node import Node, NodeProgram
from tests.kernel.traces import attached_to_cgroup, attached_to_uplink

KBPF = Path(sys.executable).with_name("kbpf")
HEALTHZ = "http://127.0.0.1:10256/healthz"
READY_TIMEOUT_S = 120
# kubelet's own, of every node.
KUBELET_CHAINS = ("KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-FIREWALL", "KUBE-MARK-DROP")
PROCESSES = "bin/kube-proxy |bin/kbpf "


@dataclass(frozen=True, slots=True)
class Engine:
    name: str
    arguments: Callable[[Node, Path], list[str | Path]]
    clean_up: Callable[[Node, Path], list[str | Path]]


def _kube_proxy(mode: str) -> Engine:
    def arguments(node: Node, _: Path) -> list[str | Path]:
        return [built("kube-proxy"), f"--config={node.proxy_configuration(mode)}"]

    return Engine(f"kube-proxy {mode}", arguments, lambda node, account: [*arguments(node, account), "--cleanup"])


def _kbpf(datapath: str) -> Engine:
    def arguments(node: Node, account: Path) -> list[str | Path]:
        """The file that kube-proxy is given too; only the account is its own, with the rights of `deploy/`."""
        configuration = node.proxy_configuration("iptables")
        return [KBPF, f"--config={configuration}", f"--kubeconfig={account}", f"--datapath={datapath}"]

    return Engine(f"kbpf {datapath}", arguments, lambda node, account: [KBPF, "cleanup"])


KUBE_PROXY_IPTABLES: Final = _kube_proxy("iptables")
KUBE_PROXY_NFTABLES: Final = _kube_proxy("nftables")
KBPF_EBPF: Final = _kbpf("ebpf")
KBPF_IPTABLES: Final = _kbpf("iptables")
ENGINES: Final = {
    engine.name.replace(" ", "-"): engine
    for engine in (KUBE_PROXY_IPTABLES, KUBE_PROXY_NFTABLES, KBPF_EBPF, KBPF_IPTABLES)
}


class RunningProxies:
    """One engine on all nodes. `account` is the kubeconfig of kbpf's service account."""

    def __init__(self, nodes: list[Node], account: Path) -> None:
        self.nodes = nodes
        self.account = account
        self.engine: Engine | None = None
        self.programs: dict[str, NodeProgram] = {}

    def start(self, engine: Engine) -> None:
        """Beside whatever the one before left in the kernel: taking over is part of the job."""
        assert not self.programs, f"{self.engine} still runs"
        self.engine = engine
        for node in self.nodes:
            log = node.folder.logs / f"{node.name}-{engine.name.replace(' ', '-')}.log"
            self.programs[node.name] = NodeProgram(log, node, engine.arguments(node, self.account))
        for node in self.nodes:
            self.wait_until_healthy(node)

    def wait_until_healthy(self, node: Node) -> None:
        self.programs[node.name].wait_until(
            lambda: "200" in node.run("curl", "-so", "/dev/null", "-w", "%{http_code}", HEALTHZ, check=False),
            "200 from /healthz",
            timeout_s=READY_TIMEOUT_S,
            interval_s=0.3,
        )

    def stop(self) -> None:
        """End the processes; what they programmed stays."""
        for program in self.programs.values():
            program.stop()
        self.programs.clear()

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        for program in self.programs.values():
            program.signal(signal.SIGKILL)
            program.process.wait()
        self.programs.clear()

    def check(self) -> None:
        for program in self.programs.values():
            program.check()

    def remove(self) -> None:
        """End the processes and everything they left on the nodes."""
        self.stop()
        if self.engine:
            for node in self.nodes:
                node.run(*self.engine.clean_up(node, self.account))
        self.engine = None


def assert_clean(nodes: list[Node]) -> None:
    """Raises ProgramFailed with what is left of a proxy on a node."""
    for node in nodes:
        left = remains(node)
        if left:
            raise ProgramFailed(f"{node.name} is not clean, so this run would show nothing: {'; '.join(left)}")


def remains(node: Node) -> list[str]:
    """Processes, chains, tables, programs and pins of a service proxy, one line each."""
    processes = node.run("pgrep", "--list-full", "--full", PROCESSES, check=False).splitlines()
    found = [f"process {line}" for line in processes]
    for save in ("iptables-save", "ip6tables-save"):
        chains = [line.split()[0][1:] for line in node.run(save).splitlines() if line.startswith(":KUBE-")]
        found += [f"{save}: {chain}" for chain in chains if chain not in KUBELET_CHAINS]
    found += [line for line in node.run("nft", "list", "tables").splitlines() if "kube-proxy" in line]
    found += [f"pin {name}" for name in node.run("ls", "-A", "/sys/fs/bpf").split() if name.startswith("kbpf")]
    return [*found, *attached_to_cgroup(node.cgroup), *attached_to_uplink(node.addresses.namespace)]
