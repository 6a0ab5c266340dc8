"""How many connections each backend of each Service got through the programs: their counters, with names.

Read for `kbpf top` and, where that is wished for, for the metrics. What is gone by now has no name.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from kbpf.datapath.ebpf.found import opened, read_choices
from kbpf.datapath.ebpf.layout import BACKENDS, NAMES
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import BackendKey, BackendValue, ChoiceKey, NameKey
from kbpf.model.address import host_port, unpacked

GONE = "(gone)"


class Destination(NamedTuple):
    service: str
    backend: str


def by_destination(
    choices: Mapping[ChoiceKey, int],
    name_of: Callable[[int], str | None],
    backend_of: Callable[[int], BackendValue | None],
) -> Counter[Destination]:
    counts = Counter[Destination]()
    for choice, total in choices.items():
        backend = backend_of(choice.backend_id)
        where = host_port(unpacked(backend.address), backend.port) if backend else GONE
        counts[Destination(name_of(choice.service_id) or GONE, where)] += total
    return counts


def read_connections(bpffs_root: Path) -> Counter[Destination]:
    """Of what is still there. Looks up only what was ever chosen: the maps hold all that could be. Raises MapError."""
    choices, pins = read_choices(bpffs_root), Pins(bpffs_root)
    if not choices:
        return Counter()
    with opened(NAMES, pins) as names, opened(BACKENDS, pins) as backends:

        def name_of(service_id: int) -> str | None:
            found = names.lookup(NameKey(service_id))
            return None if found is None else str(found)

        def backend_of(backend_id: int) -> BackendValue | None:
            return cast(BackendValue | None, backends.lookup(BackendKey(backend_id)))

        counts = by_destination(choices, name_of, backend_of)
    return Counter({destination: count for destination, count in counts.items() if GONE not in destination})
