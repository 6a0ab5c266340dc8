"""A flow and its verdict: the language in which tests, traces, `kbpf explain` and the reference model speak."""

from enum import Enum

import msgspec

from kbpf.model.address import Address
from kbpf.model.names import Protocol
from kbpf.model.table import Backend


class Origin(Enum):
    POD = "pod"
    """A pod of this node."""
    HOST = "host"
    """A process in this node's own network namespace."""
    OUTSIDE = "outside"
    """Anything whose packets arrive over the wire: clients, other nodes, their pods."""


class Action(Enum):
    FORWARD = "forward"
    REJECT = "reject"
    DROP = "drop"
    PASS = "pass"  # noqa: S105  (not a password)
    """Not a service flow: left alone, host routing decides."""


class Flow(msgspec.Struct, frozen=True):
    origin: Origin
    source: Address
    destination: Address
    port: int
    protocol: Protocol


class Verdict(msgspec.Struct, frozen=True):
    """`backends` is the set of allowed ones; `masquerade` says whether they see a node address as the source.

    Except those at the addresses in `delivered`, which are this node's own: what came in from elsewhere is delivered
    there as it is, since the node has no reason to be its sender.
    """

    action: Action
    backends: frozenset[Backend] = frozenset()
    masquerade: bool = False
    delivered: frozenset[Address] = frozenset()

    def is_masqueraded(self, flow: Flow, backend: Backend) -> bool:
        """Also true when a backend reaches itself through its Service (hairpin)."""
        return backend.address not in self.delivered and (self.masquerade or backend.address == flow.source)


PASS = Verdict(Action.PASS)
REJECT = Verdict(Action.REJECT)
DROP = Verdict(Action.DROP)
