"""Names: which Service, which of its ports, which slice. Tuples, since they are the keys of every table."""

from typing import NamedTuple

from kbpf.model.constant import Constant


class Protocol(Constant):
    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"

    @property
    def number(self) -> int:
        """IANA protocol number."""
        return _PROTOCOL_NUMBERS[self]


_PROTOCOL_NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}


class ServiceName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class SliceName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ServicePortName(NamedTuple):
    """One port of a Service. The protocol belongs to the key but not to the text, as in kube-proxy."""

    service: ServiceName
    port: str
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.service}:{self.port}" if self.port else str(self.service)
