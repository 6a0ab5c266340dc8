"""The pinned maps: name, kind, size, and how each key and value of `shapes` lies in bytes.

`encode` packs with it, `adopt` and `dump` unpack with it, `maps` opens the pinned maps by these specifications, and
the loader compiles the programs with its sizes. A change here or in `shapes` must also raise LAYOUT_VERSION, which is
part of the pin path: old programs keep their old maps.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kbpf.datapath.ebpf.packing import BPF_F_NO_PREALLOC, Layout, MapSpec, MapType
from kbpf.datapath.ebpf.shapes import (
    NAME_LENGTH,
    AffinityKey,
    AffinityValue,
    BackendKey,
    BackendValue,
    ChoiceKey,
    ConfigValue,
    Counter,
    FlowKey,
    FlowValue,
    FragmentKey,
    FragmentValue,
    FrontendKey,
    FrontendValue,
    IndexKey,
    LocalAddrKey,
    LocalAddrValue,
    MembershipKey,
    MembershipValue,
    NameKey,
    NameValue,
    OwnerValue,
    Reason,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SlotValue,
    SockKey,
    SockValue,
    SourceRangeKey,
    SourceRangeValue,
    Translation,
    UdpConnKey,
    UdpConnValue,
    WantedKey,
    WantedValue,
)
from kbpf.datapath.ebpf.sizes import DEFAULT_ENTRIES

LAYOUT_VERSION = 5
FLOWS_SINCE = 4
"""The first version whose rows of flows mean what they mean now. Flows of older ones are lost when kbpf is replaced."""

_INDEX: Layout[IndexKey] = Layout("u32", IndexKey, "number:I")

FRONTENDS = MapSpec(
    "frontends",
    MapType.HASH,
    Layout("frontend_key", FrontendKey, "address:16s port:H protocol:B pad:x"),
    Layout(
        "frontend_value",
        FrontendValue,
        "address:16s port:H protocol:B kind:B service_id:I flags:B defer_reason:B internal_view:B internal_verdict:B"
        " external_view:B external_verdict:B pad:2x",
    ),
    DEFAULT_ENTRIES["frontends"],
    BPF_F_NO_PREALLOC,
)
SERVICES = MapSpec(
    "services",
    MapType.HASH,
    Layout("service_key", ServiceKey, "id:I"),
    Layout("service_value", ServiceValue, "generation:I n_cluster:H n_local:H id:I affinity_timeout_s:I"),
    DEFAULT_ENTRIES["services"],
    BPF_F_NO_PREALLOC,
)
SLOTS = MapSpec(
    "slots",
    MapType.HASH,
    Layout("slot_key", SlotKey, "service_id:I generation:I view:H position:H"),
    Layout("slot_value", SlotValue, "service_id:I generation:I backend_id:I backend:20s"),
    DEFAULT_ENTRIES["slots"],
    BPF_F_NO_PREALLOC,
)
BACKENDS = MapSpec(
    "backends",
    MapType.HASH,
    Layout("backend_key", BackendKey, "id:I"),
    Layout("backend_value", BackendValue, "address:16s port:H protocol:B pad:x id:I"),
    DEFAULT_ENTRIES["backends"],
    BPF_F_NO_PREALLOC,
)
MEMBERSHIP = MapSpec(
    "membership",
    MapType.HASH,
    Layout("membership_key", MembershipKey, "service_id:I backend_id:I view:I"),
    Layout("membership_value", MembershipValue, "first_generation:I last_generation:I service_id:I backend_id:I"),
    DEFAULT_ENTRIES["membership"],
    BPF_F_NO_PREALLOC,
)
AFFINITY = MapSpec(
    "affinity",
    MapType.LRU_HASH,
    Layout("affinity_key", AffinityKey, "client:16s service_id:I pad:4x"),
    Layout("affinity_value", AffinityValue, "last_seen_ns:Q backend_id:I service_id:I"),
    DEFAULT_ENTRIES["affinity"],
)
TRANSLATION = Layout(
    "translation",
    Translation,
    "frontend_address:16s backend_address:16s frontend_port:H backend_port:H service_id:I backend_id:I last_used_ms:I",
)
CONNECTIONS = MapSpec("connections", MapType.ARRAY, _INDEX, TRANSLATION, DEFAULT_ENTRIES["connections"])
OWNERS = MapSpec(
    "owners",
    MapType.ARRAY,
    _INDEX,
    Layout("owner_value", OwnerValue, "lock:4s pad:4x socket_cookie:Q"),
    CONNECTIONS.max_entries,
)
SOCK = MapSpec(
    "sock",
    MapType.SK_STORAGE,
    Layout("int", SockKey, "fd:i"),
    Layout("sock_value", SockValue, "connected:48s unconnected:384s next:I pad:4x"),
    0,
    BPF_F_NO_PREALLOC,
)
UDP_CONN = MapSpec(
    "udp_conn",
    MapType.LRU_HASH,
    Layout("udp_conn_key", UdpConnKey, "netns_cookie:Q socket_cookie:Q"),
    Layout(
        "udp_conn_value",
        UdpConnValue,
        "frontend_address:16s backend_address:16s frontend_port:H backend_port:H",
    ),
    DEFAULT_ENTRIES["udp_conn"],
)
LOCAL_ADDR = MapSpec(
    "local_addr",
    MapType.HASH,
    Layout("local_addr_key", LocalAddrKey, "address:16s"),
    Layout("local_addr_value", LocalAddrValue, "flags:I"),
    DEFAULT_ENTRIES["local_addr"],
    BPF_F_NO_PREALLOC,
)
CONFIG = MapSpec(
    "config",
    MapType.ARRAY,
    _INDEX,
    Layout(
        "config_value",
        ConfigValue,
        "host_netns_cookie:Q next_service_id:I next_backend_id:I node_address4:16s node_address6:16s flags:I"
        " masquerade_mark:I udp_timeout_s:I udp_stream_timeout_s:I",
    ),
    1,
)
_COUNTER: Layout[Counter] = Layout("u64", Counter, "total:Q")
STATS = MapSpec("stats", MapType.PERCPU_ARRAY, _INDEX, _COUNTER, len(Reason))
PACKET_STATS = MapSpec("packet_stats", MapType.PERCPU_ARRAY, _INDEX, _COUNTER, len(Reason))
FLOWS = MapSpec(
    "flows",
    MapType.LRU_HASH,
    Layout(
        "flow_key",
        FlowKey,
        "source:16s destination:16s source_port:H destination_port:H protocol:B direction:B pad:2x",
    ),
    Layout(
        "flow_value",
        FlowValue,
        "frontend_address:16s backend_address:16s frontend_port:H backend_port:H client_port:H translated_port:H"
        " service_id:I backend_id:I last_seen_s:I seen:B flags:B view:B pad:x",
    ),
    DEFAULT_ENTRIES["flows"],
)
FRAGMENTS = MapSpec(
    "fragments",
    MapType.LRU_HASH,
    Layout("fragment_key", FragmentKey, "source:16s destination:16s id:I protocol:B pad:3x"),
    Layout("fragment_value", FragmentValue, "source_port:H destination_port:H seen_s:I"),
    8192,
)
SOURCE_RANGES = MapSpec(
    "source_ranges",
    MapType.LPM_TRIE,
    Layout("source_range_key", SourceRangeKey, "prefix_length:I service_id:I address:16s"),
    Layout("source_range_value", SourceRangeValue, "service_id:I"),
    DEFAULT_ENTRIES["source_ranges"],
    BPF_F_NO_PREALLOC,
)
WANTED = MapSpec(
    "wanted",
    MapType.LRU_HASH,
    Layout("wanted_key", WantedKey, "id:I"),
    Layout("wanted_value", WantedValue, "last_seen_s:I"),
    1024,
)
CHOICES = MapSpec(
    "choices",
    MapType.LRU_PERCPU_HASH,
    Layout("choice_key", ChoiceKey, "service_id:I backend_id:I"),
    _COUNTER,
    DEFAULT_ENTRIES["choices"],
)
NAMES = MapSpec(
    "names",
    MapType.HASH,
    Layout("name_key", NameKey, "id:I"),
    Layout("name_value", NameValue, f"text:{NAME_LENGTH}s"),
    SERVICES.max_entries,
    BPF_F_NO_PREALLOC,
)

# Any: the maps have different rows, and who walks over all of them looks at names and sizes only.
ALL_MAPS: tuple[MapSpec[Any, Any], ...] = (
    FRONTENDS,
    SERVICES,
    SLOTS,
    BACKENDS,
    MEMBERSHIP,
    AFFINITY,
    OWNERS,
    CONNECTIONS,
    SOCK,
    UDP_CONN,
    LOCAL_ADDR,
    CONFIG,
    STATS,
    PACKET_STATS,
    FLOWS,
    FRAGMENTS,
    SOURCE_RANGES,
    WANTED,
    CHOICES,
    NAMES,
)

# Rows that name services, backends and generations by number mean nothing without the others.
NUMBERED_MAPS = frozenset(
    spec.name for spec in (FRONTENDS, SERVICES, SLOTS, BACKENDS, MEMBERSHIP, AFFINITY, CHOICES, NAMES)
)


def specs(sizes: Mapping[str, int]) -> tuple[MapSpec[Any, Any], ...]:
    """All maps, with max_entries by map name where it is not the default."""
    # Every service has a name, every record of a connection an owner.
    follows: dict[str, MapSpec[Any, Any]] = {NAMES.name: SERVICES, OWNERS.name: CONNECTIONS}
    sizes = {**sizes, **{name: sizes.get(spec.name, spec.max_entries) for name, spec in follows.items()}}
    return tuple(replace(spec, max_entries=sizes.get(spec.name, spec.max_entries)) for spec in ALL_MAPS)
