"""eBPF with a residue: which datapath holds which frontends, and in which order they change hands."""

from collections.abc import Set
from typing import NamedTuple

import pytest

from kbpf.datapath.residual import ResidualDatapath
from kbpf.errors import MapError
from kbpf.model.names import Protocol, ServiceName
from kbpf.model.table import FrontendKind, ResolvedPort, ServiceTable
from tests.builders import endpoint_slice, port, service, service_name, table_of
from tests.recording import RecordingDatapath

WEB = service_name("web")
PLAIN = table_of(service("web"), endpoint_slice("web", "10.42.1.5"))
SHARED = table_of(service("web", external_ips=["203.0.113.9"]), endpoint_slice("web", "10.42.1.5"))
SCTP = table_of(service("web", port(80, protocol="SCTP")))
EMPTY = ServiceTable()


def residue(resolved: ResolvedPort) -> ResolvedPort | None:
    """Defers SCTP and whatever is not a ClusterIP."""
    kept = tuple(
        frontend
        for frontend in resolved.frontends
        if resolved.protocol is Protocol.SCTP or frontend.kind is not FrontendKind.CLUSTER_IP
    )
    if not kept:
        return None
    fields = {name: getattr(resolved, name) for name in resolved.__struct_fields__}
    return ResolvedPort(**(fields | {"frontends": kept}))


class Ordered(RecordingDatapath):
    """Two of these share a diary of who was written when."""

    diary: list[str]

    def sync(self, *args, **kwargs):
        report = super().sync(*args, **kwargs)
        self.diary.append(f"{self.name}: {', '.join(map(str, self.held)) or 'empty'}")
        return report

    def cleanup(self) -> None:
        super().cleanup()
        self.diary.append(f"{self.name}: gone")


class Decision(NamedTuple):
    table: ServiceTable
    dirty: Set[ServiceName]
    full: bool
    services: Set[ServiceName]
    masquerades: bool


class Deferring(Ordered):
    """Decides and writes in two steps, as the eBPF datapath does; services that are `spilled` it leaves alone."""

    spilled: Set[ServiceName] = frozenset()
    retried: Set[ServiceName] = frozenset()
    masquerades = False

    def prepare(self, table, dirty, *, full):
        return Decision(
            table, dirty, full, {*dirty, *self.retried, *(table.services if full else ())}, self.masquerades
        )

    def residue(self, port: ResolvedPort) -> ResolvedPort | None:
        return port if port.name.service in self.spilled else residue(port)

    def commit(self, prepared):
        return self.sync(prepared.table, prepared.dirty, full=prepared.full)


class Rig:
    def __init__(self, *, holds_all: bool = False) -> None:
        self.ebpf, self.iptables = Deferring("ebpf"), Ordered("iptables")
        self.diary = self.ebpf.diary = self.iptables.diary = []
        self.has_flows = False
        self.datapath = ResidualDatapath(self.ebpf, self.iptables, lambda: self.has_flows, holds_all=holds_all)

    def sync(self, table: ServiceTable, *, full: bool = False) -> list[str]:
        """Who was written, in order."""
        self.diary.clear()
        self.datapath.sync(table, frozenset({WEB}), full=full)
        return list(self.diary)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_plain_cluster_puts_no_rule_into_netfilter_and_clears_old_ones_once(rig: Rig):
    assert rig.sync(PLAIN, full=True) == ["ebpf: shop/web", "iptables: gone"]
    assert rig.sync(PLAIN, full=True) == ["ebpf: shop/web"]


def test_a_start_that_needs_no_rule_does_not_ask_for_those_that_stand(rig: Rig):
    rig.sync(PLAIN, full=True)
    assert rig.iptables.dumps == 0


def test_rules_are_there_before_ebpf_stands_back(rig: Rig):
    rig.sync(PLAIN, full=True)
    assert rig.sync(SHARED) == ["iptables: shop/web", "ebpf: shop/web"]


def test_rules_that_carry_everything_go_only_after_ebpf_took_over(rig: Rig):
    """An earlier process ran iptables, and one frontend stays there."""
    rig.iptables.sync(SHARED, frozenset(), full=True)
    assert rig.sync(SHARED, full=True) == ["ebpf: shop/web", "iptables: shop/web"]


def test_a_first_sync_on_a_node_without_rules_writes_them_first(rig: Rig):
    assert rig.sync(SHARED, full=True) == ["iptables: shop/web", "ebpf: shop/web"]


def test_the_rules_hold_only_the_deferred_frontends(rig: Rig):
    rig.sync(SHARED, full=True)
    assert [frontend.kind for held in rig.iptables.held[WEB] for frontend in held.frontends] == [
        FrontendKind.EXTERNAL_IP
    ]


def test_rules_go_only_after_ebpf_took_over(rig: Rig):
    rig.sync(SHARED, full=True)
    assert rig.sync(PLAIN) == ["ebpf: shop/web", "iptables: gone"]


def test_as_a_safety_net_rules_hold_every_frontend_and_stand_first():
    rig = Rig(holds_all=True)
    assert rig.sync(PLAIN, full=True) == ["iptables: shop/web", "ebpf: shop/web"]
    assert rig.iptables.held == rig.ebpf.held
    assert rig.sync(PLAIN) == ["ebpf: shop/web"]
    assert rig.sync(EMPTY) == ["ebpf: empty", "iptables: gone"]


def test_a_change_that_leaves_the_residue_alone_writes_no_rules(rig: Rig):
    rig.sync(SCTP, full=True)
    assert rig.sync(SCTP) == ["ebpf: shop/web"]


def test_a_deleted_service_leaves_nothing(rig: Rig):
    rig.sync(SHARED, full=True)
    rig.sync(EMPTY)
    assert (rig.ebpf.held, rig.iptables.held) == ({}, {})


def test_a_failed_ebpf_sync_keeps_the_old_rules_and_the_retry_removes_them(rig: Rig):
    rig.sync(SHARED, full=True)
    rig.ebpf.failures.append(MapError("no"))
    with pytest.raises(MapError):
        rig.sync(PLAIN)
    assert rig.iptables.held
    assert rig.sync(PLAIN, full=True)[-1] == "iptables: gone"


def test_cleanup_removes_both(rig: Rig):
    rig.sync(SHARED, full=True)
    rig.datapath.cleanup()
    assert (rig.ebpf.cleanups, rig.iptables.cleanups) == (1, 1)


API = service_name("api")
TWO = table_of(service("web"), service("api", cluster_ips=["10.96.0.11"]), endpoint_slice("web", "10.42.1.5"))


def test_a_service_for_which_there_is_room_again_leaves_the_rules_though_it_did_not_change(rig: Rig):
    rig.ebpf.spilled = {API}
    rig.sync(TWO, full=True)
    assert rig.iptables.held.keys() == {API}
    rig.ebpf.spilled, rig.ebpf.retried = frozenset(), {API}
    assert rig.sync(TWO)[-1] == "iptables: gone"


def test_a_service_that_is_decided_anew_and_no_longer_fits_gets_rules_first(rig: Rig):
    rig.sync(TWO, full=True)
    rig.ebpf.spilled = rig.ebpf.retried = {API}
    assert rig.sync(TWO)[0] == "iptables: shop/api"


def test_the_report_speaks_for_both(rig: Rig):
    rig.ebpf.warnings, rig.iptables.warnings = ("ebpf: tight",), ("IPv6 is left out: no iptables",)
    rig.ebpf.duration_s, rig.iptables.duration_s = 2.0, 1.0
    report = rig.datapath.sync(SHARED, frozenset({WEB}), full=True)
    assert report.warnings == ("ebpf: tight", "IPv6 is left out: no iptables")
    assert (report.writes, report.duration_s) == (2, 2.0)
    rig.iptables.warnings = ()
    report = rig.datapath.sync(SCTP, frozenset({WEB}), full=False)
    assert report.warnings == ("ebpf: tight",)


def test_rules_are_missed_only_while_there_must_be_some(rig: Rig):
    rig.ebpf.missing, rig.iptables.missing = ("programs",), ("IPv4 nat: our chains",)
    rig.sync(PLAIN, full=True)
    assert rig.datapath.lost() == ("programs",)
    rig.sync(SHARED)
    assert rig.datapath.lost() == ("programs", "IPv4 nat: our chains")


def test_the_last_rules_wait_for_the_connections_that_they_translated(rig: Rig):
    rig.sync(SHARED, full=True)
    rig.has_flows = True
    assert rig.sync(PLAIN) == ["ebpf: shop/web", "iptables: empty"]
    assert rig.sync(PLAIN) == ["ebpf: shop/web", "iptables: empty"]
    rig.has_flows = False
    assert rig.sync(PLAIN)[-1] == "iptables: gone"
    assert rig.sync(PLAIN) == ["ebpf: shop/web"]


def test_rules_that_are_wanted_again_while_the_last_ones_wait_are_written(rig: Rig):
    rig.sync(SHARED, full=True)
    rig.has_flows = True
    rig.sync(PLAIN)
    assert rig.sync(SHARED) == ["iptables: shop/web", "ebpf: shop/web"]


def test_the_rules_that_masquerade_stand_without_services_while_they_are_needed(rig: Rig):
    rig.sync(PLAIN, full=True)
    rig.ebpf.masquerades = True
    assert rig.sync(PLAIN) == ["iptables: empty", "ebpf: shop/web"]
    assert rig.iptables.syncs[-1][1], "the first rules of all are written by a full sync"
    assert rig.sync(PLAIN) == ["ebpf: shop/web"]
    rig.ebpf.masquerades = False
    assert rig.sync(PLAIN) == ["ebpf: shop/web", "iptables: gone"]
