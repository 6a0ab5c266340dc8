"""Names of chains: kube-proxy's own, so that everything that looks for them still finds them.

Per-service chains carry a hash of the service port; which of them are ours is decided by the exact pattern, never by
the prefix alone. Used by render, plan and cleanup.
"""

import re
from hashlib import sha256
from itertools import product

from kbpf.model.names import ServicePortName

SERVICES = "KUBE-SERVICES"
EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS = "KUBE-NODEPORTS"
POSTROUTING = "KUBE-POSTROUTING"
MARK_MASQUERADE = "KUBE-MARK-MASQ"
FORWARD = "KUBE-FORWARD"
PROXY_FIREWALL = "KUBE-PROXY-FIREWALL"
LOCALHOST_FIREWALL = "KUBE-FIREWALL"
"""Shared with kubelet, which writes the same rule and the same jumps."""
CANARY = "KUBE-PROXY-CANARY"
"""Empty; when it is gone, somebody flushed the table."""
TRIAL = "KBPF-TRIAL"
"""Exists while it is found out what the kernel takes; nothing jumps to it."""
KUBELET_CHAINS = frozenset({"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"})
"""In table mangle of the flavour that kubelet uses (KEP-3178)."""

_REMOVAL_ORDER = ("KUBE-FW-", "KUBE-EXT-", "KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-")
_PAIRS = tuple(map("".join, product("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", repeat=2)))
_SERVICE_CHAIN = re.compile(r"KUBE-(?:SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16}")


class PortChains:
    """The names of the chains of one service port."""

    def __init__(self, name: ServicePortName) -> None:
        self._hashed = f"{name}{name.protocol.value.lower()}"
        digest = _hash(self._hashed)
        self.cluster = f"KUBE-SVC-{digest}"
        """Balances over the cluster list."""
        self.local = f"KUBE-SVL-{digest}"
        """Balances over the local list."""
        self.external = f"KUBE-EXT-{digest}"
        """Where external traffic enters."""
        self.firewall = f"KUBE-FW-{digest}"
        """Source ranges."""

    def backend(self, endpoint: str) -> str:
        """Of "address:port". Both lists share the chain of a backend, and so its affinity."""
        return f"KUBE-SEP-{_hash(self._hashed + endpoint)}"


def is_service_chain(chain: str) -> bool:
    """A per-service chain of ours (or of an earlier kube-proxy on this node, whose place we take)."""
    return _SERVICE_CHAIN.fullmatch(chain) is not None


def removal_order(chain: str) -> tuple[int, str]:
    """Sorts chains so that one that jumps goes before the one that it jumps to: deletions may then be spread out."""
    if chain in (SERVICES, NODE_PORTS):
        return -1, chain
    ranks = (rank for rank, prefix in enumerate(_REMOVAL_ORDER) if chain.startswith(prefix))
    return next(ranks, len(_REMOVAL_ORDER)), chain


def _hash(text: str) -> str:
    """The first sixteen characters of the digest in base 32, two at a time; b32encode takes four times as long."""
    digest, pairs = sha256(text.encode()).digest(), _PAIRS
    high, low = int.from_bytes(digest[:5], "big"), int.from_bytes(digest[5:10], "big")
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )
