"""`kbpf top`: how many new connections each backend of each Service gets, from two readings of counters.

The programs count each choice of a backend; of rules the kernel counts the first packet of each connection. Pure, but
for `read_counts`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kbpf.composition import FLAVOURS
from kbpf.config import Config
from kbpf.datapath.ebpf import found as programs
from kbpf.datapath.ebpf.choices import Destination, by_destination
from kbpf.datapath.ebpf.reading import name_of
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import BackendKey, ChoiceKey
from kbpf.datapath.iptables.commands import run_process
from kbpf.datapath.iptables.counted import counted
from kbpf.datapath.iptables.host import choose_tools
from kbpf.errors import DatapathUnavailable
from kbpf.model.address import Family, host_port
from kbpf.model.table import Backend
from kbpf.questions.kernel import require_root

Counts = Mapping[Destination, int]
"""New connections since some moment in the past."""


class Rate(NamedTuple):
    destination: Destination
    connections: int
    per_second: float


def read_counts(config: Config) -> Counts:
    """By both datapaths; what cannot be read counts nothing. Raises KbpfError."""
    require_root()
    counts = Counter[Destination]()
    found = programs.read(config.bpffs_root)
    if found is not None:
        counts.update(by_programs(found.rows, programs.read_choices(config.bpffs_root)))
    try:
        tools = choose_tools(run_process, FLAVOURS[config.iptables_backend], tuple(Family)).tools
    except DatapathUnavailable:
        return counts
    for tool in tools.values():
        counts.update(by_rules(counted(tool.save_counters())))
    return counts


def by_programs(rows: Rows, choices: Mapping[ChoiceKey, int]) -> Counts:
    return by_destination(
        choices,
        lambda service_id: name_of(rows, service_id),
        lambda backend_id: rows.backends.get(BackendKey(backend_id)),
    )


def by_rules(found: Iterator[tuple[str, Backend, int]]) -> Counts:
    counts = Counter[Destination]()
    for service, backend, packets in found:
        counts[Destination(service, host_port(backend.address, backend.port))] += packets
    return counts


def rates(before: Counts, after: Counts, seconds: float) -> tuple[Rate, ...]:
    """The busiest first; who got nothing is left out. A counter that began anew counts from nothing."""
    found = []
    for destination, total in after.items():
        more = total - before.get(destination, 0)
        more = total if more < 0 else more
        if more:
            found.append(Rate(destination, more, more / seconds))
    return tuple(sorted(found, key=lambda rate: (-rate.connections, rate.destination)))
