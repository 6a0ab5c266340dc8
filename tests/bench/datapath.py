"""`make bench`: what a Service costs a connection, against talking to the pod directly.

Every figure is a ratio inside one run: direct, X, direct, in random order of X, and the median over the rounds; the A/A
control is the direct bed against itself. Absolute times on a shared machine mean little.
"""

import argparse
import json
import platform
import random
import statistics
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench.bed import PORT, SERVER, Bed

MODES = ("connect", "request", "pingpong", "datagram")
CONTROL = "direct again"


def manifests(services: int) -> dict[str, object]:
    """`services` Services of two ports each (TCP and UDP) with the one server behind all of them."""
    items: list[dict[str, object]] = []
    for number in range(services):
        name = f"s{number}"
        ports = [{"name": p.lower(), "protocol": p, "port": 80} for p in ("TCP", "UDP")]
        spec = {"type": "ClusterIP", "clusterIP": cluster_ip(number), "ports": ports}
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name), "spec": spec})
        items.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": _metadata(name) | {"labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [SERVER], "nodeName": "n1"}],
                "ports": [{"name": port["name"], "protocol": port["protocol"], "port": PORT} for port in ports],
            }
        )
    return {"apiVersion": "v1", "kind": "List", "items": items}


def cluster_ip(number: int) -> str:
    return f"10.96.{number // 250}.{number % 250 + 1}"


def _metadata(name: str) -> dict[str, object]:
    return {"name": name, "namespace": "bench"}


def variants(sizes: list[int]) -> dict[str, tuple[str, int]]:
    """Name → (datapath, services). The measured Service is the last one: the worst place in a list of rules."""
    found = {f"ebpf, {size} services": ("ebpf", size) for size in sizes}
    found |= {f"iptables, {size} services": ("iptables", size) for size in sizes if size <= 1000}
    return found


def run(sizes: list[int], rounds: int, operations: int) -> dict[str, dict[str, list[float]]]:
    """Ratios to direct by variant and mode, one a round."""
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack, Progress(transient=True) as progress:
        chosen = variants(sizes)
        task = progress.add_task("building beds", total=len(chosen) + 1)
        direct = stack.enter_context(Bed("kbpfbench-d"))
        beds: dict[str, tuple[Bed, str, int]] = {CONTROL: (direct, SERVER, PORT)}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for index, (name, (datapath, size)) in enumerate(chosen.items()):
            file = folder / f"{index}.json"
            file.write_text(json.dumps(manifests(size)))
            bed = stack.enter_context(Bed(f"kbpfbench-{index}"))
            bed.run_kbpf(file, datapath)
            beds[name] = (bed, cluster_ip(size - 1), 80)
            progress.advance(task)
        progress.reset(task, description="measuring", total=rounds * len(beds) * len(MODES))
        for _ in range(rounds):
            for name in random.sample(list(beds), len(beds)):
                for mode in MODES:
                    ratios[name][mode].append(_ratio(direct, beds[name], mode, operations))
                    progress.advance(task)
    return ratios


def _ratio(direct: Bed, variant: tuple[Bed, str, int], mode: str, operations: int) -> float:
    bed, address, port = variant
    before = direct.measure(mode, SERVER, PORT, operations)
    measured = bed.measure(mode, address, port, operations)
    after = direct.measure(mode, SERVER, PORT, operations)
    return 2 * measured.p50 / (before.p50 + after.p50)


def show(ratios: dict[str, dict[str, list[float]]]) -> Table:
    table = Table("through", *MODES, title=f"p50 against direct, {platform.machine()}, Linux {platform.release()}")
    for name, by_mode in sorted(ratios.items()):
        table.add_row(name, *(f"{statistics.median(by_mode[mode]):.3f}" for mode in MODES))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, nargs="+", default=[1, 1000, 10000], help="how many are present")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--operations", type=int, default=1000, help="in each measurement")
    arguments = parser.parse_args()
    Console().print(show(run(arguments.services, arguments.rounds, arguments.operations)))


if __name__ == "__main__":
    main()
