"""`make bench-datapath`: what a Service costs a connection, through kbpf, the real kube-proxy, and directly.

Every figure is a ratio inside one run, A X A in random order of X, and the median over the rounds: from a pod against
the direct connection, from outside to a node port against kube-proxy, and each has a control, the peer against itself.
Absolute times on a shared machine mean little. While a control is off and a goal hangs on it, rounds are added up to a
limit. The exit status is 1 when a goal is missed, and 3 when the machine was too noisy to tell.
"""

import argparse
import json
import platform
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench.bed import PORT, SERVER, Bed
from tests.bench.cluster_objects import NODE_ADDRESS
from tests.bench.goal import Goal, Verdict, judge
from tests.bench.targets import NODE_PORT, TARGET_ADDRESS, TARGET_PORT, manifest

MODES = ("connect", "request", "pingpong", "datagram")
OUTSIDE_MODES = ("connect", "request")
OUTSIDE_REPEATS = 3
"""In each round: its goal is within half a percent of what is measured."""
CONTROL = "direct again"
EBPF, OPEN_EBPF, PEER = "kbpf eBPF", "kbpf eBPF with a node port", "kube-proxy iptables"
KBPF = {EBPF: "ebpf", OPEN_EBPF: "ebpf", "kbpf iptables": "iptables"}
"""Where clients outside may come, the kernel masquerades, and its connection tracking costs every flow of the node: the
plain cluster is another one. With rules it makes no difference."""
KUBE_PROXY = {PEER: "iptables", "kube-proxy nftables": "nftables"}
DIRECT_GOAL = 1.02
OUTSIDE_GOALS = {1: 1.0, 10_000: 0.2}
"""By number of Services: eBPF against kube-proxy."""


class Subject(NamedTuple):
    proxy: str
    services: int

    def __str__(self) -> str:
        return f"{self.proxy}, {self.services:,}"


Ratios = dict[str, dict[str, list[float]]]
"""By what is measured and mode, one for each round."""


@dataclass(frozen=True, slots=True)
class Outcome:
    from_pod: Ratios
    """To the direct connection."""
    from_outside: Ratios
    """Of eBPF to kube-proxy's rules, by number of Services."""
    peer_again: Ratios
    """Of kube-proxy's rules to themselves, likewise."""


# -- beds ------------------------------------------------------------------------------------------------------------


def furnished(
    sizes: Sequence[int], proxies: Sequence[str], folder: Path, stack: ExitStack, timeout_s: float
) -> Iterator[tuple[Subject, Bed]]:
    """A bed for each proxy and size, with its programs or rules in force."""
    kube_proxy = None
    if any(proxy in KUBE_PROXY for proxy in proxies):
        from tests.bench.kube_proxy import KubeProxy  # wants the programs that `make cluster-tools` builds

        kube_proxy = KubeProxy(folder, stack, timeout_s)
    for number, (size, proxy) in enumerate(product(sorted(sizes), proxies)):
        bed = stack.enter_context(Bed(f"kbpfbench-{number}"))
        if kube_proxy is not None and proxy in KUBE_PROXY:
            kube_proxy.furnish(bed, KUBE_PROXY[proxy], size)
        else:
            file = folder / f"{size}.json"
            file.write_text(json.dumps(manifest(size, has_node_port=proxy != EBPF)))
            bed.run_kbpf(file, KBPF[proxy])
        yield Subject(proxy, size), bed


# -- rounds ----------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> Outcome:
    outcome = Outcome(*(defaultdict(lambda: defaultdict(list)) for _ in range(3)))
    proxies = [*KBPF, *(() if arguments.without_kube_proxy else KUBE_PROXY)]
    with ExitStack() as stack, Progress(transient=True) as progress:
        direct = stack.enter_context(Bed("kbpfbench-d"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        task = progress.add_task("building beds", total=len(proxies) * len(arguments.services))
        beds: dict[Subject, Bed] = {}
        for subject, bed in furnished(arguments.services, proxies, folder, stack, arguments.timeout):
            beds[subject] = bed
            progress.advance(task)
        progress.reset(task, description="measuring", total=arguments.rounds)
        for number in range(max(arguments.rounds, arguments.most_rounds)):
            if number >= arguments.rounds and all(goal.verdict is not Verdict.NOISY for goal in goals(outcome)):
                break
            _round_from_pods(direct, beds, arguments.operations, outcome.from_pod)
            _round_from_outside(beds, arguments.operations, outcome)
            progress.advance(task)
    return outcome


def _round_from_pods(direct: Bed, beds: dict[Subject, Bed], operations: int, ratios: Ratios) -> None:
    targets = {CONTROL: (direct, SERVER, PORT)}
    targets |= {str(subject): (bed, TARGET_ADDRESS, TARGET_PORT) for subject, bed in beds.items()}
    for name in random.sample(list(targets), len(targets)):
        bed, address, port = targets[name]
        for mode in MODES:
            before = direct.measure(mode, SERVER, PORT, operations)
            measured = bed.measure(mode, address, port, operations)
            after = direct.measure(mode, SERVER, PORT, operations)
            ratios[name][mode].append(2 * measured.p50 / (before.p50 + after.p50))


def _round_from_outside(beds: dict[Subject, Bed], operations: int, outcome: Outcome) -> None:
    for subject, bed in beds.items():
        peer = beds.get(Subject(PEER, subject.services))
        if subject.proxy != OPEN_EBPF or peer is None:
            continue
        for mode in OUTSIDE_MODES * OUTSIDE_REPEATS:
            first, measured, second, third = (
                each.measure(mode, NODE_ADDRESS, NODE_PORT, operations, from_outside=True).p50
                for each in (peer, bed, peer, peer)
            )
            outcome.from_outside[str(subject.services)][mode].append(2 * measured / (first + second))
            outcome.peer_again[str(subject.services)][mode].append(2 * second / (first + third))


# -- tables and goals ------------------------------------------------------------------------------------------------


def tables(outcome: Outcome) -> Iterator[Table]:
    machine = f"{platform.machine()}, Linux {platform.release()}"
    yield _table(f"p50 from a pod against direct, {machine}", "through, Services", MODES, outcome.from_pod)
    if outcome.from_outside:
        title = "p50 of a node port from outside, eBPF against kube-proxy iptables"
        yield _table(title, "Services", OUTSIDE_MODES, outcome.from_outside)
        yield _table(f"control: {PEER} against itself", "Services", OUTSIDE_MODES, outcome.peer_again)


def _table(title: str, first: str, modes: Sequence[str], ratios: Ratios) -> Table:
    table = Table(first, *modes, title=title)
    for name, by_mode in sorted(ratios.items()):
        table.add_row(name, *(f"{statistics.median(by_mode[mode]):.3f}" for mode in modes))
    return table


def goals(outcome: Outcome) -> Iterator[Goal]:
    for name, by_mode in outcome.from_pod.items():
        if name.startswith(f"{EBPF}, "):
            for mode in OUTSIDE_MODES:
                measured = statistics.median(by_mode[mode])
                control = statistics.median(outcome.from_pod[CONTROL][mode])
                yield Goal(f"{name} Services, {mode}, against direct", measured, DIRECT_GOAL, control)
    for services, by_mode in outcome.from_outside.items():
        for mode in OUTSIDE_MODES if int(services) in OUTSIDE_GOALS else ():
            what = f"node port from outside, {int(services):,} Services, {mode}, against {PEER}"
            control = statistics.median(outcome.peer_again[services][mode])
            yield Goal(what, statistics.median(by_mode[mode]), OUTSIDE_GOALS[int(services)], control)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, nargs="+", default=[1, 1000, 10000], help="how many are present")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--most-rounds", type=int, default=30, help="so many while it is too noisy to judge")
    parser.add_argument("--operations", type=int, default=1000, help="in each measurement")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that kube-proxy may take to write")
    parser.add_argument("--without-kube-proxy", action="store_true", help="needs no `make cluster-tools`")
    arguments = parser.parse_args()
    console = Console()
    outcome = run(arguments)
    for table in tables(outcome):
        console.print(table)
    judge(goals(outcome), console)


if __name__ == "__main__":
    main()
