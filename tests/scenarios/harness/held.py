"""What the kernel of a world's node holds for a proxy, a line an entry, asked from the kernel and not from kbpf."""

import re
import subprocess

from tests.scenarios.harness.world import World

SAVES = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
COUNTERS = re.compile(r"\[\d+:\d+\]")


def rules(world: World) -> list[str]:
    """Chains and rules of both families and both kinds of iptables, without counters."""
    lines = []
    for save in SAVES:
        command = ["nsenter", f"--net={world.node.namespace.path}", save]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines += [f"{save}: {COUNTERS.sub('', line)}" for line in printed.splitlines() if line[0] in ":-"]
    return lines
