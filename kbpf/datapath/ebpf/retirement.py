"""The end of this datapath while another one carries the services: nothing new begins here, and what lives goes on.

Connections of this node's sockets need nothing of ours once they stand. Those from elsewhere are translated packet by
packet, so the packet programs stay, with no frontend left to begin a flow with, until the last connection has ended.
Called by `backend`, again and again.
"""

from typing import Protocol

from kbpf.datapath.ebpf.collector import TCP, Flows, FlowTimeouts, collect
from kbpf.datapath.ebpf.layout import FRONTENDS, SERVICES
from kbpf.datapath.ebpf.store import MapSet, open_map


class Hooks(Protocol):
    def detach_hooks(self) -> None:
        """From sockets; the packet programs stay."""
        ...


def retire(hooks: Hooks, maps: MapSet, flows: Flows, now_s: int, timeouts: FlowTimeouts) -> bool:
    """Take on nothing new. True when nothing lives on the packet programs any more, so that all may go.

    Datagrams move on at once: without its service no remembered choice is current. What answers them goes with it.
    """
    hooks.detach_hooks()
    for spec in (FRONTENDS, SERVICES):
        target = open_map(maps, spec)
        target.delete(list(target.entries()))
    collect(flows, now_s, timeouts)
    return not any(key.protocol == TCP for rows in flows.batches() for key in rows)
