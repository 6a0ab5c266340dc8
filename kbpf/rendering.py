"""What would be programmed, from objects alone: the pure half of both datapaths, put together for `kbpf render`."""

from collections.abc import Iterable

import msgspec

from kbpf.datapath.ebpf.defer import DeferSettings, residue
from kbpf.datapath.ebpf.ids import Ids
from kbpf.datapath.ebpf.installed import Installed
from kbpf.datapath.ebpf.layout import specs
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.iptables.book import RuleBook
from kbpf.datapath.iptables.plan import complete_input
from kbpf.datapath.iptables.ruleset import RestoreInput
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Family
from kbpf.model.events import Event, NodeChanged, ServiceChanged, SliceChanged
from kbpf.model.names import ServiceName
from kbpf.model.node import NodeTopology, node_zone
from kbpf.model.objects import Node
from kbpf.model.problem import Problem
from kbpf.model.table import ResolvedPort, ServiceTable
from kbpf.policy.resolve import resolve
from kbpf.tracking.trackers import Trackers


class Decided(msgspec.Struct, frozen=True):
    """A table for one node, the Node if there is one, and what was wrong with the objects."""

    table: ServiceTable
    node: Node | None
    problems: tuple[Problem, ...]


class EbpfRendering(msgspec.Struct, frozen=True):
    """The rows of the maps on an empty node, and the frontends that are left to iptables."""

    rows: Rows
    residue: ServiceTable


def decide(events: Iterable[Event], node_name: str) -> Decided:
    trackers = Trackers(node_name)
    node: Node | None = None
    for event in events:
        if isinstance(event, ServiceChanged | SliceChanged):
            trackers.update(event)
        elif isinstance(event, NodeChanged) and event.name == node_name:
            node = event.node
    topology = NodeTopology(node_name, node_zone(node) if node else "")
    return Decided(_table(resolve(trackers.service_names, trackers, topology)), node, tuple(trackers.problems))


def render_iptables(table: ServiceTable, settings: IptablesSettings) -> dict[Family, RestoreInput]:
    """The restore input of each family that any Service is in, without the jumps from built-in chains."""
    rendered = {}
    for family in Family:
        if any(port.family is family for port in table):
            book = RuleBook(family, settings)
            book.update_all(table)
            rendered[family] = complete_input(book)
    return rendered


def render_ebpf(table: ServiceTable, *, masquerade_all: bool) -> EbpfRendering:
    installed = Installed(Ids(), specs({}), DeferSettings(masquerade_all=masquerade_all, serves_packets=True))
    installed.change(table, table.services)
    left = {
        service: tuple(
            rest
            for port in table.ports_of(service)
            if (rest := residue(port, table.owned_frontends(port), installed.settings)) is not None
        )
        for service in table.services
    }
    return EbpfRendering(installed.everything(), _table(left))


def _table(ports: dict[ServiceName, tuple[ResolvedPort, ...]]) -> ServiceTable:
    table = ServiceTable()
    for service, resolved in ports.items():
        table.replace(service, resolved)
    return table
