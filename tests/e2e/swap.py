"""Service proxies swapped on a live cluster while connections are made all the time and others are held."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.e2e.cluster import Cluster
from tests.e2e.engines import KBPF_EBPF, KBPF_IPTABLES, KUBE_PROXY_IPTABLES, Engine
from tests.e2e.workload import Caller, Losses, load, wait_until_served, workload
from tests.progress import say

# The same engine twice: it is killed and started anew. Last what loses connections, whose remains disturb others.
STEPS = (
    KUBE_PROXY_IPTABLES,
    KBPF_EBPF,
    KBPF_EBPF,
    KBPF_IPTABLES,
    KBPF_IPTABLES,
    KUBE_PROXY_IPTABLES,
    KBPF_IPTABLES,
    KBPF_EBPF,
    KUBE_PROXY_IPTABLES,
)


@dataclass(frozen=True, slots=True)
class Swap:
    before: str
    after: str
    seconds: float
    losses: Losses

    @property
    def must_be_lossless(self) -> bool:
        return not _needs_clean_nodes(self.before, self.after)

    def line(self) -> str:
        return f"{self.before} → {self.after}: {self.seconds:.1f} s; {self.losses}"


def swap_all(cluster: Cluster) -> list[Swap]:
    cluster.proxies.start(STEPS[0])
    with workload(cluster) as made:
        wait_until_served(made.callers)
        say(f"{len(made.callers)} callers, {len(cluster.nodes)} backends")
        return [_swap(cluster, before, after, made.callers) for before, after in pairwise(STEPS)]


def _swap(cluster: Cluster, before: Engine, after: Engine, callers: Sequence[Caller]) -> Swap:
    """Long connections begin before each swap, so that each proxy must keep those of the one before it."""
    with load(callers) as running:
        started = time.monotonic()
        _exchange(cluster, before, after)
        seconds = time.monotonic() - started
        losses = running.losses()
        cluster.check()
    swap = Swap(before.name, after.name, seconds, losses)
    say(swap.line())
    return swap


def _exchange(cluster: Cluster, before: Engine, after: Engine) -> None:
    """Each takes over what stands; before kube-proxy comes back, kbpf's programs must go."""
    if _needs_clean_nodes(before.name, after.name):
        cluster.proxies.remove()
    elif before is after:
        cluster.proxies.kill()
    else:
        cluster.proxies.stop()
    cluster.proxies.start(after)


def _needs_clean_nodes(before: str, after: str) -> bool:
    """Rules go from hand to hand, programs do not."""
    return (before, after) == (KBPF_EBPF.name, KUBE_PROXY_IPTABLES.name)
