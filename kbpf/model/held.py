"""What a kernel was found to hold for a frontend, whichever datapath put it there: the language of `kbpf status`.

Both datapaths read their rows and rules back into it; nothing is decided from it.
"""

from typing import NamedTuple

from kbpf.model.address import Address, Family, host_port
from kbpf.model.names import Protocol
from kbpf.model.table import Backend, FrontendKey, FrontendKind


class HeldFrontend(NamedTuple):
    key: FrontendKey
    kind: FrontendKind
    service: str = ""
    """`namespace/name:port`; empty when nothing tells it."""
    cluster: tuple[Backend, ...] = ()
    local: tuple[Backend, ...] = ()
    by_programs: bool = False
    """eBPF programs serve it, for some of its callers at least."""
    by_rules: bool = False
    reason: str = ""
    """Why programs leave it to rules."""

    @property
    def carrier(self) -> str:
        return " and ".join(name for name, is_so in (("ebpf", self.by_programs), ("iptables", self.by_rules)) if is_so)

    @property
    def spelled(self) -> str:
        """`ClusterIP 10.96.0.10:80/tcp`, `NodePort 30080/udp`; the two families share the number of a node port."""
        protocol = self.key.protocol.value.lower()
        if self.key.address is None:
            return f"{self.kind.value} {self.key.port}/{protocol}"
        return f"{self.kind.value} {host_port(self.key.address, self.key.port)}/{protocol}"


def held_key(family: Family, address: Address | None, port: int, protocol: str) -> FrontendKey:
    return FrontendKey(family, address, port, Protocol(protocol.upper()))
