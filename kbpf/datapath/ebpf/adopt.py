"""Takes over what the maps hold: ids, generations and lists, as an earlier process left them, halfway or whole.

The maps hold no names. A service port is recognised by its frontends, a backend by its address, port and protocol.
What contradicts itself is not taken over; the full plan that follows rewrites or sweeps it.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from kbpf.datapath.ebpf.defer import DeferSettings
from kbpf.datapath.ebpf.encode import OPEN_END, UNREADABLE, Encoded, frontend_key
from kbpf.datapath.ebpf.ids import Ids, backend_address
from kbpf.datapath.ebpf.installed import Installed
from kbpf.datapath.ebpf.rows import AnySpec, Rows
from kbpf.datapath.ebpf.shapes import (
    FIRST_RESERVED_ID,
    ConfigValue,
    FrontendKey,
    FrontendValue,
    IndexKey,
    NameKey,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SlotValue,
    SourceRangeKey,
    View,
)
from kbpf.model.table import ServiceTable

CONFIG_KEY = IndexKey(0)
NO_CONFIG = ConfigValue(0, 0, 0)

FrontendRow = tuple[FrontendKey, FrontendValue]


def adopt(
    rows: Rows, table: ServiceTable, specs: Sequence[AnySpec], settings: DeferSettings, given: Ids | None = None
) -> Installed:
    """What `rows` say of the service ports in `table`. `given`: what this process remembers of ids, if it does."""
    installed = Installed(_ids(rows, given or Ids()), specs, settings)
    installed.generations = _newest_generations(rows)
    ranges: dict[int, list[SourceRangeKey]] = {}
    for key in sorted(rows.source_ranges):
        ranges.setdefault(key.service_id, []).append(key)
    kept = _kept(rows)
    leading = Counter(frontend.service_id for frontend in rows.frontends.values())
    for port in table if rows.frontends else ():
        keys = dict.fromkeys(frontend_key(port, frontend) for frontend in table.owned_frontends(port))
        found = [(key, rows.frontends[key]) for key in keys if key in rows.frontends]
        if not found:
            continue
        service = _service(found, rows, leading)
        if service is None:
            installed.adopt(port, Encoded(tuple(found)))
            continue
        cluster, local = (_backends(service, view, rows, installed.ids) for view in (View.CLUSTER, View.LOCAL))
        timeout_s, own = service.affinity_timeout_s, tuple(ranges.get(service.id, ()))
        name = str(rows.names.get(NameKey(service.id), ""))
        staying = tuple(number for number in kept[service.id] if installed.ids.is_backend(number))
        installed.adopt(
            port, Encoded(tuple(found), service.id, service.generation, cluster, local, timeout_s, own, name, staying)
        )
    installed.used.clear()
    installed.used.update({spec.name: len(held) for spec, held in rows})
    return installed


def _kept(rows: Rows) -> dict[int, list[int]]:
    """By service id, the backends beside its lists."""
    found: dict[int, list[int]] = defaultdict(list)
    members = ((key, rows.membership[key]) for key in rows.membership if key.view == View.KEPT)
    for key, member in sorted(members):
        if member[2:] == key[:2] and member.last_generation == OPEN_END:
            found[key.service_id].append(key.backend_id)
    return found


def _ids(rows: Rows, given: Ids) -> Ids:
    services = [key.id for key, value in rows.services.items() if value.id == key.id < FIRST_RESERVED_ID]
    backends = {key.id: value for key, value in rows.backends.items() if value.id == key.id < FIRST_RESERVED_ID}
    config = rows.config.get(CONFIG_KEY, NO_CONFIG)
    # The rows as well: the ids must not begin anew when somebody emptied the config map.
    ids = Ids(
        max(config.next_service_id, given.next_service, max(services, default=0) + 1),
        max(config.next_backend_id, given.next_backend, max(backends, default=0) + 1),
    )
    for number in sorted(backends):
        ids.adopt_backend(number, backend_address(*backends[number][:3]))
    return ids


def _newest_generations(rows: Rows) -> dict[int, int]:
    """A generation that was half written is never written into again: nobody knows what else it holds."""
    newest = {key.id: value.generation for key, value in rows.services.items()}
    for slot in rows.slots:
        newest[slot.service_id] = max(newest.get(slot.service_id, 0), slot.generation)
    for key, member in rows.membership.items():
        last = member.first_generation if member.last_generation == OPEN_END else member.last_generation
        newest[key.service_id] = max(newest.get(key.service_id, 0), member.first_generation, last)
    return newest


def _service(found: list[FrontendRow], rows: Rows, leading: Counter[int]) -> ServiceValue | None:
    """The service that these frontends lead to, where key and value agree at each step, and no other frontend does.

    External addresses move from one Service to another. While a frontend of the old owner still leads to a service,
    its lists must not become the new owner's.
    """
    here = Counter(frontend.service_id for _, frontend in found)
    for key, frontend in found:
        service = rows.services.get(ServiceKey(frontend.service_id))
        if frontend[:3] != key or service is None or service.id != frontend.service_id:
            continue
        if here[service.id] == leading[service.id]:
            return service
    return None


def _backends(service: ServiceValue, view: View, rows: Rows, ids: Ids) -> tuple[int, ...]:
    count = service.n_local if view is View.LOCAL else service.n_cluster
    slots = (rows.slots.get(SlotKey(service.id, service.generation, view, position)) for position in range(count))
    return tuple(_backend(slot, service, ids) if slot is not None else UNREADABLE for slot in slots)


def _backend(slot: SlotValue, service: ServiceValue, ids: Ids) -> int:
    is_backend = ids.is_backend(slot.backend_id) and ids.address(slot.backend_id) == slot.backend
    return slot.backend_id if is_backend and slot[:2] == (service.id, service.generation) else UNREADABLE
