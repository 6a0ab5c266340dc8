"""The rows of no service: what the programs must know of the node itself. Pure; called by `backend`."""

from collections.abc import Iterable, Mapping

import msgspec

from kbpf.datapath.ebpf.adopt import CONFIG_KEY
from kbpf.datapath.ebpf.encode import source_range
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    ConfigFlag,
    ConfigValue,
    FrontendKey,
    LocalAddrKey,
    LocalAddrValue,
    LocalFlag,
    SourceRangeValue,
)
from kbpf.model.address import V4_MAPPED_PREFIX, Address, Family, family_of, packed

POD_RANGES = 0
"""The service id under which the ranges of pods stand among the source ranges."""

_DETECTS = {Family.IPV4: ConfigFlag.DETECTS_PODS4, Family.IPV6: ConfigFlag.DETECTS_PODS6}
_UNKNOWN = bytes(16)
_LOOPBACK4 = V4_MAPPED_PREFIX + b"\x7f"
"""How all addresses of 127.0.0.0/8 begin."""


class NodeSettings(msgspec.Struct, frozen=True):
    """What does not change while the daemon runs."""

    netns_cookie: int = 0
    """Of the namespace whose sockets are the node's own; 0 for the kernel's first."""
    detecting: frozenset[Family] = frozenset()
    """Families in which pods can be told from others: there, other clients of ClusterIPs are masqueraded."""
    pod_ranges: tuple[str, ...] = ()
    masquerade_mark: int = 0x4000
    udp_timeout_s: int = 30
    udp_stream_timeout_s: int = 120


class NodeState(msgspec.Struct, frozen=True):
    """What does."""

    local: Mapping[Address, LocalFlag] = msgspec.field(default_factory=dict)
    ids_to_come: tuple[int, int] = (0, 0)
    masquerades: bool = False
    """The rule that masquerades marked packets is in force."""
    stands_apart: bool = False
    """No frontend has an address of this node for its own, so that programs look for one thing less."""


def node_rows(settings: NodeSettings, state: NodeState) -> Rows:
    ranges = [source_range(POD_RANGES, cidr) for cidr in settings.pod_ranges]
    return Rows(
        config={CONFIG_KEY: _config(settings, state)},
        local_addr={LocalAddrKey(packed(address)): LocalAddrValue(flag) for address, flag in state.local.items()},
        source_ranges={key: SourceRangeValue(POD_RANGES) for key in ranges},
    )


def says_apart(rows: Rows) -> bool:
    """Are the programs told that no frontend has an address of this node?"""
    return any(config.flags & ConfigFlag.STANDS_APART for config in rows.config.values())


def stand_apart(frontends: Iterable[FrontendKey], local: Iterable[Address]) -> bool:
    """May they be told so of these?"""
    own = {packed(address) for address in local}
    return not any(key.address in own or key.address.startswith(_LOOPBACK4) for key in frontends)


def _config(settings: NodeSettings, state: NodeState) -> ConfigValue:
    flags = ConfigFlag.MASQUERADES if state.masquerades else ConfigFlag(0)
    if state.stands_apart:
        flags |= ConfigFlag.STANDS_APART
    for family in settings.detecting:
        flags |= _DETECTS[family]
    return ConfigValue(
        settings.netns_cookie,
        *state.ids_to_come,
        _own_address(state.local, Family.IPV4),
        _own_address(state.local, Family.IPV6),
        flags.value,
        settings.masquerade_mark,
        settings.udp_timeout_s,
        settings.udp_stream_timeout_s,
    )


def _own_address(local: Mapping[Address, LocalFlag], family: Family) -> bytes:
    """Refused packets are led to this address."""
    own = [address for address, flag in local.items() if family_of(address) is family and flag & LocalFlag.PRIMARY]
    return packed(min(own)) if own else _UNKNOWN
