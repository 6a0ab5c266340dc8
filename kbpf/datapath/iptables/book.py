"""The rule book: the rendered rules of one family, by Service.

It renders what changed and keeps the rest, so that an unchanged Service costs nothing. Owned by the backend; plan turns
its content into restore inputs.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbpf.datapath.iptables.render import Entry, PortRules, render_port
from kbpf.datapath.iptables.ruleset import Chain
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.table import Frontend, ResolvedPort, ServiceTable


class Page(NamedTuple):
    """One service port: its rules, and what they were rendered from."""

    port: ResolvedPort
    frontends: tuple[Frontend, ...]
    with_comments: bool
    rules: PortRules


class Turned(NamedTuple):
    """The rules of one Service before and after."""

    before: tuple[PortRules, ...]
    after: tuple[PortRules, ...]


class RuleBook:
    def __init__(self, family: Family, settings: IptablesSettings) -> None:
        self.family = family
        self.settings = settings
        self.refused: dict[ServiceName, str] = {}
        """Services that no rule can express, with the reason: they are left out, the others go on."""
        self._pages: dict[ServiceName, tuple[Page, ...]] = {}
        self._endpoints: dict[ServiceName, int] = {}
        self._all_endpoints = 0
        self.rules_in_bodies = 0

    @property
    def is_large(self) -> bool:
        """Large-cluster mode: fewer comments, and stale chains stay for a while."""
        return self._all_endpoints > self.settings.large_cluster_endpoints

    def update(self, table: ServiceTable, services: Iterable[ServiceName]) -> dict[ServiceName, Turned]:
        """Bring the pages of `services` in step with `table`; returns those whose rules differ now."""
        services = tuple(services)
        for service in services:
            self._count_endpoints(table, service)
        turned: dict[ServiceName, Turned] = {}
        for service in services:
            before = self._pages.get(service, ())
            after = self._render(table, service, before)
            if before is not after:
                self.rules_in_bodies += _count_rules(after) - _count_rules(before)
            if after:
                self._pages[service] = after
            else:
                self._pages.pop(service, None)
            if before is not after and _rules(before) != _rules(after):
                turned[service] = Turned(_rules(before), _rules(after))
        return turned

    def update_all(self, table: ServiceTable) -> dict[ServiceName, Turned]:
        return self.update(table, {*table.services, *self._pages, *self.refused})

    def entries(self) -> Iterator[Entry]:
        """Sorted by Service, so that dumps and diffs are stable."""
        for page in self._all_pages():
            yield from page.rules.entries

    def bodies(self) -> Iterator[tuple[Chain, ...]]:
        """The chains of each service port."""
        for page in self._all_pages():
            yield page.rules.chains

    def _all_pages(self) -> Iterator[Page]:
        for service in sorted(self._pages):
            yield from self._pages[service]

    def _render(self, table: ServiceTable, service: ServiceName, before: tuple[Page, ...]) -> tuple[Page, ...]:
        self.refused.pop(service, None)
        known = {page.port.name: page for page in before}
        try:
            after = tuple([self._page(table, port, known.get(port.name)) for port in self._ports(table, service)])
        except ValueError as error:
            self.refused[service] = str(error)
            return ()
        return before if after == before else after

    def _page(self, table: ServiceTable, port: ResolvedPort, known: Page | None) -> Page:
        frontends = table.owned_frontends(port)
        with_comments = not self.is_large
        if known is not None and known[:3] == (port, frontends, with_comments):
            return known
        rules = render_port(port, frontends, self.settings, with_comments=with_comments)
        return Page(port, frontends, with_comments, rules)

    def _ports(self, table: ServiceTable, service: ServiceName) -> list[ResolvedPort]:
        return [port for port in table.ports_of(service) if port.family is self.family]

    def _count_endpoints(self, table: ServiceTable, service: ServiceName) -> None:
        count = sum([port.known_endpoints for port in self._ports(table, service)])
        self._all_endpoints += count - self._endpoints.pop(service, 0)
        if count:
            self._endpoints[service] = count


def _rules(pages: tuple[Page, ...]) -> tuple[PortRules, ...]:
    return tuple(page.rules for page in pages)


def _count_rules(pages: tuple[Page, ...]) -> int:
    return sum([len(rules) for page in pages for _, rules in page.rules.chains])
