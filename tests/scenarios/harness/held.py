"""What the kernel of a world's node holds for a proxy: a line an entry, and the same line for the same state.

Read with the kernel's tools and through the pins, beside the daemon that wrote it.
"""

import re
import subprocess

from kbpf.datapath.ebpf.factory import create
from kbpf.host.clsact import ClsactFilters
from tests.scenarios.harness.world import World

SAVES = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
# Numbers that are never given twice, and so differ after every change.
NUMBERS = re.compile(r"\b(\w*(?:id|generation))=\d+")
USER_CHAIN = re.compile(r":\S+ - ")
OF_A_SERVICE = re.compile(r"KUBE-(SVC|SVL|EXT|FW|SEP)-|no (local )?endpoints|health check node port")


def rules(world: World) -> list[str]:
    """Chains and rules of both families and both kinds of iptables, without counters; built-in chains are no one's."""
    lines = []
    for save in SAVES:
        command = ["nsenter", f"--net={world.node.namespace.path}", save]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines += [f"{save}: {line.split(' ')[0]}" for line in printed.splitlines() if USER_CHAIN.match(line)]
        lines += [f"{save}: {line}" for line in printed.splitlines() if line.startswith("-A")]
    return lines


def rows_and_rules(world: World) -> list[str]:
    """The rows of the pinned maps, without their running numbers, and the rules of what eBPF left to iptables.

    The rules that belong to no Service wait for the connections that others translated, so they are no left-over.
    """
    datapath = create(world.node.bpffs, world.node.cgroup, frozenset, ClsactFilters())
    lines = [line for line in datapath.dump().splitlines() if not line.startswith("config ")]
    return [NUMBERS.sub(r"\1=*", line) for line in lines] + list(filter(OF_A_SERVICE.search, rules(world)))
