"""Who owns the Services of this node? Asked once, before anything of it is touched.

Two proxies with one set of chain names undo each other's rules at every sync, so kbpf does not start beside a
kube-proxy that runs. What is merely left over is taken over or reported.
"""

import logging
from collections.abc import Callable, Iterable

from kbpf.config import Config
from kbpf.errors import NodeOwnedElsewhere
from kbpf.host.other_proxies import Sighting, leftovers, running_proxies

log = logging.getLogger(__name__)

KUBE_PROXY_METRICS = ("127.0.0.1", 10249)


def claim_node(
    config: Config,
    *,
    force: bool,
    running: Callable[[Iterable[tuple[str, int]]], list[Sighting]] = running_proxies,
    left: Callable[[], list[str]] = leftovers,
) -> None:
    """Raises NodeOwnedElsewhere when another service proxy runs here, unless `force` is set."""
    found = running([KUBE_PROXY_METRICS, *_own_metrics(config)])
    if found:
        names = " and ".join(dict.fromkeys(sighting.name for sighting in found))
        words = f"{names} runs on this node ({'; '.join(sighting.evidence for sighting in found)})"
        if not force:
            raise NodeOwnedElsewhere(f"{words}: stop it first, or start with --force to fight over its rules")
        log.warning(f"{words}; starting all the same, as --force says")
    for line in left():
        log.warning(line)


def _own_metrics(config: Config) -> list[tuple[str, int]]:
    """Where kube-proxy would answer if it were started with our options; a wildcard is asked on loopback."""
    address = config.metrics_address
    if address is None:
        return []
    return [({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host), address.port)]  # noqa: S104
