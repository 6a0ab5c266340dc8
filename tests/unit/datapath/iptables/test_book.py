"""The rule book renders what changed, and says of which Services the rules differ now."""

import msgspec

from kbpf.datapath.iptables.book import RuleBook
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Family
from kbpf.model.names import ServiceName
from kbpf.model.objects import EndpointSlice, Service
from kbpf.model.table import ServiceTable
from tests.builders import endpoint_slice, service, service_name, table_of, unusable

WEB, API = service_name("web"), service_name("api")
WEB_SLICE = endpoint_slice("web", "10.42.1.1", "10.42.1.2")
BOTH = (service("web"), WEB_SLICE, service("api", cluster_ips=["10.96.0.11"]), endpoint_slice("api", "10.42.1.3"))


def open_book(*objects: Service | EndpointSlice, large: int = 1000) -> tuple[RuleBook, ServiceTable]:
    table = table_of(*objects)
    book = RuleBook(Family.IPV4, IptablesSettings(large_cluster_endpoints=large))
    book.update_all(table)
    return book, table


def test_a_service_that_did_not_change_is_not_turned():
    book, table = open_book(*BOTH)
    assert book.update(table, {WEB, API}) == {}


def test_a_change_of_conditions_that_no_rule_shows_is_not_turned():
    book, table = open_book(*BOTH)
    table.replace(WEB, table_of(service("web"), WEB_SLICE).ports_of(WEB))
    assert book.update(table, {WEB}) == {}


def test_a_service_that_changed_comes_with_its_rules_before_and_after():
    book, table = open_book(*BOTH)
    table.replace(WEB, table_of(service("web"), endpoint_slice("web", "10.42.1.1")).ports_of(WEB))
    turned = book.update(table, {WEB, API})
    assert turned.keys() == {WEB}
    (before,), (after,) = turned[WEB]
    assert len(before.chains) == 3
    assert len(after.chains) == 2


def test_a_service_that_is_gone_leaves_the_book():
    book, table = open_book(*BOTH)
    table.replace(WEB, ())
    assert book.update(table, {WEB})[WEB].after == ()
    assert len(list(book.entries())) == 1


def test_only_the_services_that_were_asked_for_are_looked_at():
    book, table = open_book(*BOTH)
    table.replace(WEB, ())
    assert book.update(table, {API}) == {}
    assert len(list(book.entries())) == 2


def test_an_address_that_changes_its_owner_turns_both_services():
    first = service("api", cluster_ips=["10.96.0.11"], external_ips=["203.0.113.1"])
    second = service("web", external_ips=["203.0.113.1"])
    book, table = open_book(first, second, WEB_SLICE, endpoint_slice("api", "10.42.1.3"))
    affected = table.replace(API, ())
    assert affected == {API, WEB}
    assert book.update(table, affected).keys() == {API, WEB}


def test_comments_go_when_the_cluster_grows_large_and_only_from_what_is_rendered_then():
    book, table = open_book(*BOTH, large=3)
    assert not book.is_large
    table.replace(
        WEB, table_of(service("web"), endpoint_slice("web", "10.42.1.1", "10.42.1.2", "10.42.1.4")).ports_of(WEB)
    )
    book.update(table, {WEB})
    assert book.is_large
    bodies = {chain.name: chain for body in book.bodies() for chain in body}
    commented = [any("->" in rule for rule in chain.rules) for name, chain in bodies.items() if "SVC" in name]
    assert commented == [True, False]
    book.update_all(table)
    assert not any("->" in rule for body in book.bodies() for chain in body for rule in chain.rules)


def test_endpoints_that_are_not_ready_count_towards_a_large_cluster():
    book, table = open_book(service("web"), endpoint_slice("web", "10.42.1.1", "10.42.1.2", "10.42.1.3"), large=3)
    assert not book.is_large
    starting = endpoint_slice("web", "10.42.1.1", "10.42.1.2", "10.42.1.3", unusable("10.42.1.4"))
    table.replace(WEB, table_of(service("web"), starting).ports_of(WEB))
    book.update(table, {WEB})
    assert book.is_large


def test_a_name_that_no_rule_can_carry_leaves_its_service_out_and_no_other():
    table = table_of(*BOTH)
    (port,) = table.ports_of(WEB)
    for text in ('a"b', "a\nCOMMIT", "-j DROP", "x" * 300):
        evil = ServiceName("shop", text)
        name, frontend = port.name._replace(service=evil), port.frontends[0]._replace(port=81)
        bad = msgspec.structs.replace(port, name=name, frontends=(frontend,))
        table.replace(evil, (bad,))
    book = RuleBook(Family.IPV4, IptablesSettings())
    book.update_all(table)
    assert len(book.refused) == 4
    assert len(list(book.entries())) == 2
    table.replace(ServiceName("shop", 'a"b'), ())
    book.update_all(table)
    assert len(book.refused) == 3
