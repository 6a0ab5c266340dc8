"""How many entries the maps have whose size can be set, by name. The command line names them in its options, and loads
nothing else of this datapath for that.
"""

DEFAULT_ENTRIES = {
    "frontends": 65536,
    "services": 65536,
    "slots": 262144,
    "backends": 65536,
    "membership": 262144,
    "affinity": 131072,
    "connections": 65536,
    "udp_conn": 65536,
    "local_addr": 4096,
    "flows": 131072,
    "source_ranges": 16384,
    "choices": 16384,
}

GROWING = frozenset(("frontends", "services", "slots", "backends", "membership", "source_ranges", "local_addr"))
"""Maps whose rows are user space's own: they grow when they must."""


def size_flag(name: str) -> str:
    """The option that sets how many entries a map has: frontends -> --bpf-frontend-entries."""
    return f"--bpf-{name.removesuffix('s').replace('_', '-')}-entries"
