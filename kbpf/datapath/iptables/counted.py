"""Connections that rules translated, from their packet counters: in nat, the kernel counts a connection's first packet.

Pure. `kbpf top` shows the difference of two readings; every rewrite of a Service's chains begins anew.
"""

import re
from collections.abc import Iterator

from kbpf.datapath.iptables import names
from kbpf.datapath.iptables.reading import destination
from kbpf.datapath.iptables.rule import parse_rule
from kbpf.model.table import Backend

_COUNTED = re.compile(r"\[(\d+):\d+\] (-A .*)")
_NAMED = re.compile(r"(\S+/\S+?)( .*)?")
UNNAMED = "(no name)"


def counted(saved: str) -> Iterator[tuple[str, Backend, int]]:
    """From what `iptables-save --counters` printed: Service port, backend, connections.

    In a large cluster the rules of backends carry no name; then the chain of the Service tells it.
    """
    rules = [(int(found[1]), parse_rule(found[2])) for line in saved.splitlines() if (found := _COUNTED.match(line))]
    owner: dict[str, str] = {}
    for _, rule in rules:
        named = _NAMED.fullmatch(rule.options.get("--comment", ""))
        if names.is_service_chain(rule.target) and named and rule.chain in (names.SERVICES, names.NODE_PORTS):
            owner.setdefault(rule.target, named[1])
    for _, rule in rules:
        if rule.chain in owner and names.is_service_chain(rule.target):
            owner.setdefault(rule.target, owner[rule.chain])
    for packets, rule in rules:
        backend = destination(rule)
        if backend is not None and names.is_service_chain(rule.chain):
            named = _NAMED.fullmatch(rule.options.get("--comment", ""))
            yield named[1] if named else owner.get(rule.chain, UNNAMED), backend, packets
