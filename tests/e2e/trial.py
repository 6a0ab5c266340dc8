"""One overlay of deploy/kubernetes on the live cluster, from `kubectl apply` to clean nodes.

Apply, smoke test, the conformance tests where wanted; then, under load, a newer build and the deletion of the
DaemonSet; last the documented clean-up. `daemonset_report` says what came of it.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kbpf.demo.client import Client
from tests.cluster.programs import ProgramFailed
from tests.e2e import kustomization, suite
from tests.e2e.cluster import Cluster
from tests.e2e.daemonset import DaemonSet, Readiness
from tests.e2e.engines import KUBE_PROXY_IPTABLES, RunningProxies, assert_clean, remains
from tests.e2e.node import Node
from tests.e2e.own_image import Build, builds
from tests.e2e.suite import Outcome
from tests.e2e.workload import Caller, Losses, Workload, load, wait_until_served, workload
from tests.kernel.traces import attached_to_cgroup
from tests.progress import say, step

CALLS = 60
"""Of each caller in the smoke test: three backends are all seen, but for one run in ten thousand millions."""
CANARY_LABEL = "kbpf.io/canary"
BPFFS = "/sys/fs/bpf"
VERSION = "http://127.0.0.1:10249/version"


@dataclass(frozen=True, slots=True)
class Overlay:
    path: str
    """Below deploy/kubernetes."""
    datapath: str = "ebpf"
    is_conformance_tested: bool = False
    node_count: int | None = None
    """On how many nodes it runs; the others keep kube-proxy. None: on all."""
    loads_v6: bool = False
    """The load is of IPv6; of IPv4 elsewhere."""
    mounts_bpffs: bool = False
    """One node has none, so the pod must mount it where the node keeps it."""

    @property
    def name(self) -> str:
        return Path(self.path).name


OVERLAYS = {
    overlay.name: overlay
    for overlay in (
        Overlay("base", is_conformance_tested=True, mounts_bpffs=True),
        Overlay("overlays/restricted"),
        Overlay("overlays/iptables", datapath="iptables", is_conformance_tested=True),
        Overlay("overlays/dual-stack", loads_v6=True),
        Overlay("overlays/canary", node_count=1),
    )
}


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of an overlay."""

    overlay: Overlay
    started: Readiness
    conformance: tuple[Outcome, ...]
    rolled_out: Readiness
    roll_out: Losses
    deletion: Losses
    left: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        name = self.overlay.name
        for when, readiness in (("after apply", self.started), ("after the roll-out", self.rolled_out)):
            if not readiness.is_complete:
                yield f"{name}: {when} {readiness}"
        yield from (f"{name}: {outcome.name}: {outcome.failure}" for outcome in self.conformance if not outcome.passed)
        for when, losses in (("roll-out", self.roll_out), ("deletion", self.deletion)):
            if losses.has_any:
                yield f"{name}: {when}: {losses}"
        yield from (f"{name}: left after the clean-up: {line}" for line in self.left)


def run(cluster: Cluster, overlay: Overlay) -> Trial:
    """Raises ProgramFailed when the trial cannot go on."""
    say(f"overlay {overlay.name}")
    assert_clean(cluster.nodes)
    daemonset = DaemonSet(cluster.control_plane)
    with _other_nodes_served(cluster, overlay) as nodes:
        if overlay.mounts_bpffs:
            nodes[-1].run("umount", BPFFS)
        try:
            trial = _run(cluster, overlay, daemonset, nodes)
        finally:
            daemonset.save_logs()
    left = tuple(f"{node.name}: {line}" for node in cluster.nodes for line in remains(node))
    return replace(trial, left=left)


def _run(cluster: Cluster, overlay: Overlay, daemonset: DaemonSet, nodes: Sequence[Node]) -> Trial:
    current, newer = builds()
    own = kustomization.write(cluster.control_plane, overlay.path)
    with step(f"{overlay.name}: kubectl apply"):
        started = daemonset.apply(own.running)
    _refuse_others(nodes, current, overlay)
    _refuse_without_bpffs(nodes)
    conformance = _conformance(cluster, overlay)
    with workload(cluster) as made:
        _smoke(made)
        callers = made.callers_v6 if overlay.loads_v6 else made.callers
        with step(f"{overlay.name}: kubectl set image, under load"), load(callers) as running:
            rolled_out = daemonset.roll_out(newer.name)
            roll_out = running.losses()
        say(str(roll_out))
        _refuse_others(nodes, newer, overlay)
        with step(f"{overlay.name}: kubectl delete, under load"), load(callers) as running:
            daemonset.delete(own.running)
            deletion = running.losses()
        say(str(deletion))
    _refuse_clean(nodes)
    with step(f"{overlay.name}: the clean-up"):
        daemonset.apply(own.cleanup)
        daemonset.delete(own.cleanup)
    return Trial(overlay, started, conformance, rolled_out, roll_out, deletion)


def _conformance(cluster: Cluster, overlay: Overlay) -> tuple[Outcome, ...]:
    if not overlay.is_conformance_tested:
        return ()
    with step(f"{overlay.name}: {len(suite.SHORT_NAMES)} conformance tests"):
        results = cluster.folder.results / f"daemonset-{overlay.name}"
        return tuple(suite.run(cluster.control_plane, suite.SHORT_NAMES, results, len(cluster.nodes), cluster.check))


@contextmanager
def _other_nodes_served(cluster: Cluster, overlay: Overlay) -> Iterator[list[Node]]:
    """The nodes of the overlay. A canary's are labelled, and kube-proxy runs on the others meanwhile."""
    if overlay.node_count is None:
        yield cluster.nodes
        return
    own, others = cluster.nodes[: overlay.node_count], cluster.nodes[overlay.node_count :]
    kube_proxy = RunningProxies(others, cluster.proxies.account)
    kube_proxy.start(KUBE_PROXY_IPTABLES)
    try:
        for node in own:
            cluster.control_plane.kubectl("label", "node", node.name, f"{CANARY_LABEL}=true")
        yield own
    finally:
        kube_proxy.remove()
    for node in own:
        cluster.control_plane.kubectl("label", "node", node.name, f"{CANARY_LABEL}-")


def _smoke(made: Workload) -> None:
    """Everybody reaches every backend of the caller's family. Raises ProgramFailed."""
    for callers in (made.callers, made.callers_v6):
        wait_until_served(callers)
        for caller in callers:
            _call(caller, made)


def _call(caller: Caller, made: Workload) -> None:
    answers = Client(caller.place).send(caller.request(CALLS))
    errors = sorted({answer.error for answer in answers if answer.error})
    reached = {answer.backend for answer in answers if answer.backend}
    wanted = {name for name in made.backends if name.startswith("[") == (":" in caller.address)}
    if errors or reached != wanted:
        raise ProgramFailed(f"{caller.destination}: {len(reached)} of {len(wanted)} backends reached; {errors}")


def _refuse_others(nodes: Sequence[Node], build: Build, overlay: Overlay) -> None:
    """Raises ProgramFailed where another build runs, or another datapath: a fallback would pass every test."""
    for node in nodes:
        version = json.loads(node.run("curl", "--silent", VERSION))["version"]
        datapath = "ebpf" if attached_to_cgroup(node.cgroup) else "iptables"
        if (version, datapath) != (build.version, overlay.datapath):
            raise ProgramFailed(
                f"{node.name} runs {version} with {datapath}, and should run {build.version} with {overlay.datapath}"
            )


def _refuse_without_bpffs(nodes: Sequence[Node]) -> None:
    """Raises ProgramFailed where what a pod mounted is its own, and goes with it."""
    for node in nodes:
        kind = node.run("stat", "--file-system", "--format=%T", BPFFS).strip()
        if kind != "bpf_fs":
            raise ProgramFailed(f"{BPFFS} of {node.name} is {kind}, and should be a bpffs")


def _refuse_clean(nodes: Sequence[Node]) -> None:
    """Raises ProgramFailed where nothing is left to clean: the clean-up would show nothing."""
    for node in nodes:
        if not remains(node):
            raise ProgramFailed(f"{node.name} is clean before the clean-up")
