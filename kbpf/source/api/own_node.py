"""What this node must know of its own Node before it starts, and when it must start anew. Pure.

The addresses and pod ranges of the Node go into settings that are decided once. So the source waits for them, for a
while, and ends the process when they change: whoever runs it starts it again, and traffic goes on meanwhile.
"""

from collections.abc import Iterable

from kbpf.clock import Clock
from kbpf.errors import RestartNeeded
from kbpf.model.node import node_addresses, pod_cidrs
from kbpf.model.objects import Node

LOOK_EVERY_S = 1.0
ADDRESSES_WITHIN_S = 30.0
POD_RANGES_WITHIN_S = 5 * 60.0


class NodeWait:
    """Counts from the first answer of the API server: before it, the other lists cannot be had either."""

    def __init__(self, name: str, clock: Clock, *, needs_pod_ranges: bool) -> None:
        self._name = name
        self._clock = clock
        self._needs_pod_ranges = needs_pod_ranges
        self._since: float | None = None

    def is_over(self, node: Node | None) -> bool:
        """Given the Node as it is now. Raises RestartNeeded when this node cannot work without what never came."""
        if self._since is None:
            self._since = self._clock.monotonic()
        waited_s = self._clock.monotonic() - self._since
        has_addresses = node is not None and bool(node_addresses(node))
        if not has_addresses and waited_s < ADDRESSES_WITHIN_S:
            return False
        if not self._needs_pod_ranges or (node is not None and pod_cidrs(node)):
            return True
        if waited_s < ADDRESSES_WITHIN_S + POD_RANGES_WITHIN_S:
            return False
        raise RestartNeeded(f"Node {self._name}: no spec.podCIDRs, which --detect-local-mode=NodeCIDR needs")

    def regret(self, node: Node | None) -> str:
        """What is missing although the wait is over; empty when nothing is."""
        if node is None:
            return f"Node {self._name}: does not exist; going on without its addresses and zone"
        if not node_addresses(node):
            return f"Node {self._name}: has no addresses; going on without them"
        return ""


class NodeIdentity:
    """Compares each state of the Node with the first one."""

    def __init__(self, name: str, *, needs_pod_ranges: bool) -> None:
        self._name = name
        self._needs_pod_ranges = needs_pod_ranges
        self._first: Node | None = None
        self._is_settled = False

    def settle(self) -> None:
        """The list is complete: from now on, settings follow from what was seen last."""
        self._is_settled = True

    def reason_to_restart(self, node: Node | None) -> str:
        """Empty when this state of the Node changes nothing that was decided at the start."""
        if not self._is_settled:
            self._first = node
            return ""
        first = self._first
        if node is None:
            return f"Node {self._name} was deleted" if first else ""
        before, now = node_addresses(first) if first else (), node_addresses(node)
        if before != now:
            return f"the addresses of Node {self._name} changed from {_listed(before)} to {_listed(now)}"
        ranges_before, ranges = pod_cidrs(first) if first else {}, pod_cidrs(node)
        if self._needs_pod_ranges and ranges_before != ranges:
            was, are = _listed(ranges_before.values()), _listed(ranges.values())
            return f"the pod ranges of Node {self._name} changed from {was} to {are}"
        return ""


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "none"
