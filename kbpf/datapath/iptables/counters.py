"""Counters in rules (nfacct), as kube-proxy has them: packets that were dropped as INVALID, and uses of localhost node
ports. They are named objects in the kernel, which the host makes (`host.accounting`).

Some kernels have the objects but not the match, and refuse every restore that uses it. So whether it works is found out
with one rule in a chain that nothing jumps to. Called by the backend when it opens its tools.
"""

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.commands import Tool
from kbpf.errors import CommandFailed

DROPPED_AS_INVALID = "ct_state_invalid_dropped_pkts"
LOCALHOST_NODE_PORTS = "localhost_nps_accepted_pkts"
COUNTERS = (DROPPED_AS_INVALID, LOCALHOST_NODE_PORTS)

_TRIAL = f"""\
*filter
:{names.TRIAL} - [0:0]
-A {names.TRIAL} -m nfacct --nfacct-name {DROPPED_AS_INVALID}
COMMIT
*filter
:{names.TRIAL} - [0:0]
-X {names.TRIAL}
COMMIT
"""


def counts(name: str) -> str:
    """The match that adds a packet to a counter; it always applies."""
    return f"-m nfacct --nfacct-name {name}"


def match_works(tool: Tool) -> bool:
    """Whether the kernel takes a rule with a counter. The objects must exist."""
    try:
        tool.restore(_TRIAL)
    except CommandFailed:
        return False
    return True
