"""What stands in the maps: one class for each key and value, and every number that the C programs name too.

`bpf/types.h` is the other copy; a test compares the two field by field through BTF, and the enumerations by name.
`layout` says which rows make which map and how they are packed; `encode` and `bind` make them of services.
A change here must also raise LAYOUT_VERSION.
"""

from enum import IntEnum, IntFlag
from typing import NamedTuple

from kbpf.model.address import V4_MAPPED_PREFIX, Family

FIRST_RESERVED_ID = 0xFFFFFF00
"""From here on, service and backend ids are the self-test's."""


class Kind(IntEnum):
    CLUSTER_IP = 1
    NODE_PORT = 2
    EXTERNAL_IP = 3
    LOAD_BALANCER_IP = 4


class View(IntEnum):
    """Which of a service's two backend lists; KEPT has no slots, only members, whose UDP flows stay with them."""

    CLUSTER = 0
    LOCAL = 1
    KEPT = 2


class Verdict(IntEnum):
    """What to do when the list of the view is empty."""

    REJECT = 0
    DROP = 1


class FrontendFlag(IntFlag):
    """Who leaves a frontend to iptables: the hooks for sockets of this node, the packet path for everybody else."""

    DEFER_SOCKETS = 1
    DEFER_PACKETS = 2
    SOURCE_RANGES = 4


class DeferReason(IntEnum):
    """Why a frontend is left to iptables."""

    NONE = 0
    SCTP = 1
    SOURCE_RANGES = 2
    MASQUERADE_ALL = 3
    NO_RETVAL = 4
    SPILLED = 5
    OPT_OUT = 6
    EXTERNAL = 7
    NO_DESTROY = 8


class LocalFlag(IntFlag):
    NODE_PORT = 1
    LOOPBACK = 2
    PRIMARY = 4


class Reason(IntEnum):
    """How a call left a hook or a packet its program: the index of a counter in "stats" and "packet_stats"."""

    OTHER_PROTOCOL = 0
    NOT_A_FRONTEND = 1
    LOCAL_ADDRESS = 2
    DEFERRED = 3
    REJECTED = 4
    REJECT_PASSED = 5
    DROP_PASSED = 6
    NO_SERVICE = 7
    NO_BACKEND = 8
    OTHER_FAMILY = 9
    NO_STORAGE = 10
    CHOSEN = 11
    AFFINITY = 12
    REMEMBERED = 13
    REVERSED = 14
    NOT_REVERSED = 15
    PORT_CLOSED = 16
    DROPPED = 17
    SOURCE_RANGE = 18
    NO_FLOW = 19
    NO_MASQUERADE = 20
    NO_PORT = 21
    ERROR_TRANSLATED = 22
    HALF_TRANSLATED = 23
    OVERTOOK = 24
    POD_SOCKET = 25
    PORT_HELD = 26


class ConfigFlag(IntFlag):
    """What user space knows of the node and has put in force."""

    MASQUERADES = 1
    DETECTS_PODS4 = 2
    DETECTS_PODS6 = 4
    STANDS_APART = 8


class FlowDirection(IntEnum):
    FROM_CLIENT = 0
    FROM_BACKEND = 1
    ANSWERS = 2


class FlowSeen(IntFlag):
    """Packets of one direction, as far as they were seen."""

    PACKET = 1
    SYN = 2
    FIN = 4
    RESET = 8


class FlowFlag(IntFlag):
    MASQUERADE = 1
    ANSWERED = 2


# The address in the key of a NodePort frontend: the families must not meet there, they have services of their own.
NODE_PORT_ADDRESS = {Family.IPV4: V4_MAPPED_PREFIX + bytes(4), Family.IPV6: bytes(16)}


class FrontendKey(NamedTuple):
    address: bytes
    port: int
    protocol: int


class FrontendValue(NamedTuple):
    """Repeats its key, as every value does where a recycled element would do harm."""

    address: bytes
    port: int
    protocol: int
    kind: int
    service_id: int
    flags: int
    defer_reason: int
    internal_view: int
    internal_verdict: int
    external_view: int
    external_verdict: int

    @property
    def views(self) -> tuple[int, int]:
        return self.internal_view, self.external_view


class ServiceKey(NamedTuple):
    id: int


class ServiceValue(NamedTuple):
    """The commit point: programs read generation and both counts in one load."""

    generation: int
    n_cluster: int
    n_local: int
    id: int
    affinity_timeout_s: int


class SlotKey(NamedTuple):
    service_id: int
    generation: int
    view: int
    position: int


class SlotValue(NamedTuple):
    """`backend` is its address, port and protocol in one, see `ids.backend_address`."""

    service_id: int
    generation: int
    backend_id: int
    backend: bytes


class BackendKey(NamedTuple):
    id: int


class BackendValue(NamedTuple):
    address: bytes
    port: int
    protocol: int
    id: int


class MembershipKey(NamedTuple):
    service_id: int
    backend_id: int
    view: int


class MembershipValue(NamedTuple):
    """A member now: first_generation <= the service's generation <= last_generation."""

    first_generation: int
    last_generation: int
    service_id: int
    backend_id: int


class AffinityKey(NamedTuple):
    client: bytes
    service_id: int


class AffinityValue(NamedTuple):
    last_seen_ns: int
    backend_id: int
    service_id: int


class SockKey(NamedTuple):
    fd: int


class Translation(NamedTuple):
    """One rewriting of one socket. Unused: backend_id 0."""

    frontend_address: bytes
    backend_address: bytes
    frontend_port: int
    backend_port: int
    service_id: int
    backend_id: int
    last_used_ms: int


class OwnerValue(NamedTuple):
    """Whose the record of the same number is among the connections; nobody's with cookie 0."""

    lock: bytes
    socket_cookie: int


class SockValue(NamedTuple):
    """The records of one socket, each a packed Translation."""

    connected: bytes
    unconnected: bytes
    next: int


class UdpConnKey(NamedTuple):
    netns_cookie: int
    socket_cookie: int


class UdpConnValue(NamedTuple):
    frontend_address: bytes
    backend_address: bytes
    frontend_port: int
    backend_port: int


class LocalAddrKey(NamedTuple):
    address: bytes


class LocalAddrValue(NamedTuple):
    flags: int


class IndexKey(NamedTuple):
    number: int


class ConfigValue(NamedTuple):
    """0: the cookie is unknown and programs take the kernel's first namespace for the node's own.

    Programs never read the ids to come. They stand here because a deleted row cannot tell that its id was once given.
    """

    host_netns_cookie: int
    next_service_id: int
    next_backend_id: int
    node_address4: bytes = bytes(16)
    node_address6: bytes = bytes(16)
    flags: int = 0
    masquerade_mark: int = 0
    udp_timeout_s: int = 0
    udp_stream_timeout_s: int = 0


class FlowKey(NamedTuple):
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    protocol: int
    direction: int


class FlowValue(NamedTuple):
    """One direction of a flow between an outside client and a frontend; backend id 0: a refusal."""

    frontend_address: bytes
    backend_address: bytes
    frontend_port: int
    backend_port: int
    client_port: int
    translated_port: int
    service_id: int
    backend_id: int
    last_seen_s: int
    seen: int
    flags: int
    view: int


class FragmentKey(NamedTuple):
    source: bytes
    destination: bytes
    id: int
    protocol: int


class FragmentValue(NamedTuple):
    source_port: int
    destination_port: int
    seen_s: int


class SourceRangeKey(NamedTuple):
    """Service 0: the ranges of pods. The prefix length counts the service's 32 bits."""

    prefix_length: int
    service_id: int
    address: bytes


class SourceRangeValue(NamedTuple):
    service_id: int


class WantedKey(NamedTuple):
    id: int


class WantedValue(NamedTuple):
    """When somebody outside last began a flow to a ClusterIP of the service, to be masqueraded."""

    last_seen_s: int


class Counter(NamedTuple):
    total: int


class ChoiceKey(NamedTuple):
    service_id: int
    backend_id: int


class NameKey(NamedTuple):
    id: int


NAME_LENGTH = 192
"""Two names and a port name, each as long as the API lets it be, and what stands between them."""


class NameValue(NamedTuple):
    """What people call a service: `namespace/name:port`. The programs never read it."""

    text: bytes

    @classmethod
    def of(cls, name: str) -> "NameValue":
        return cls(name.encode()[:NAME_LENGTH].ljust(NAME_LENGTH, b"\0"))

    def __str__(self) -> str:
        return self.text.rstrip(b"\0").decode(errors="replace")
