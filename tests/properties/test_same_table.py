"""However the same objects come to be, the table is the same, and so is what the kernel was told.

Objects arrive in any order, in any number of earlier versions, are deleted and made anew; syncs succeed, fail or meet
changes half-way at any moment. In the end the table that was kept up service by service equals a fresh build.
"""

from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kbpf.model.names import ServiceName
from kbpf.model.objects import SERVICE_PROXY_NAME_LABEL, EndpointSlice, Service, SliceEndpoint
from kbpf.model.table import ResolvedPort, ServiceTable
from kbpf.policy.resolve import resolve
from kbpf.tracking.trackers import ChangeSet, Trackers
from tests.builders import HERE, changed, draining, endpoint, endpoint_slice, gone, port, service, slice_port, unusable

Object = Service | EndpointSlice
SERVICE_NAMES = ("a", "b", "c")
SLICE_NAMES = ("s", "t", "u")
SHARED_IP = "203.0.113.9"


@st.composite
def services(draw: st.DrawFn, name: str) -> Service:
    """Services differ in what matters and sometimes share an external IP or are not proxied."""
    ports = [port(80, "http", node_port=draw(st.sampled_from((None, 30080)))), port(53, "dns", "UDP")]
    number = SERVICE_NAMES.index(name)
    return service(
        name,
        *ports[: draw(st.integers(1, 2))],
        cluster_ips=[f"10.96.0.{number}", f"fd96::{number}"][: draw(st.integers(1, 2))],
        type=draw(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"))),
        external_ips=[SHARED_IP] if draw(st.booleans()) else None,
        external_traffic_policy=draw(st.sampled_from(("Cluster", "Local"))),
        internal_traffic_policy=draw(st.sampled_from((None, "Local"))),
        session_affinity=draw(st.sampled_from((None, "ClientIP"))),
        labels={SERVICE_PROXY_NAME_LABEL: "other"} if draw(st.integers(0, 9)) == 0 else None,
        health_check_node_port=32100,
    )


def endpoints(family: str) -> st.SearchStrategy[SliceEndpoint]:
    addresses = ("10.42.1.5", "10.42.2.5", "10.42.1.15") if family == "IPv4" else ("fd42::5", "fd42::6", "fd42::15")
    makers: tuple[Callable[[str, str], SliceEndpoint], ...] = (
        endpoint,
        draining,
        unusable,
        lambda address, node: endpoint(address, node, zones=["za"]),
    )
    return st.builds(
        lambda make, address, node: make(address, node),
        st.sampled_from(makers),
        st.sampled_from(addresses),
        st.sampled_from(("n1", "n2")),
    )


@st.composite
def slices(draw: st.DrawFn, name: str) -> EndpointSlice:
    """Slices repeat each other's endpoints and change their Service."""
    family = draw(st.sampled_from(("IPv4", "IPv4", "IPv6")))
    return endpoint_slice(
        draw(st.sampled_from((*SERVICE_NAMES, None))),
        *draw(st.lists(endpoints(family), max_size=3)),
        name=name,
        family=family,
        ports=[slice_port(draw(st.sampled_from((8080, 9090))), "http"), slice_port(5353, "dns", "UDP")],
    )


def objects(name: str) -> st.SearchStrategy[Object]:
    return services(name) if name in SERVICE_NAMES else slices(name)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, Object | None]], dict[str, Object]]:
    """A history as (name, object or None for a deletion), and what is there when it ends."""
    names = st.sampled_from((*SERVICE_NAMES, *SLICE_NAMES))
    history: list[tuple[str, Object | None]] = []
    last: dict[str, Object | None] = {}
    for name in draw(st.lists(names, min_size=4, max_size=20)):
        last[name] = draw(st.none() | objects(name))
        history.append((name, last[name]))
    return history, {name: thing for name, thing in last.items() if thing is not None}


class Rig:
    """What the proxier does with trackers and table, and a kernel that holds the services it was last told of."""

    def __init__(self) -> None:
        self.trackers = Trackers("n1")
        self.table = ServiceTable()
        self.kernel: dict[ServiceName, tuple[ResolvedPort, ...]] = {}
        self.running: ChangeSet | None = None
        self.written: frozenset[ServiceName] = frozenset()
        self.needs_full = True

    def take(self, name: str, thing: Object | None, before: Object | None) -> None:
        made = thing or before
        if made is None:
            return
        self.trackers.update(changed(made) if thing else gone(made))  # type: ignore[arg-type]

    def step(self, step: str) -> None:
        if step in ("begin", "sync"):
            self.begin_sync()
        if step in ("finish", "sync"):
            self.finish_sync()
        if step == "fail":
            self.fail_sync()

    def begin_sync(self) -> None:
        self.finish_sync()
        self.running = self.trackers.checkout()
        affected: set[ServiceName] = set()
        for name, ports in resolve(self.running.dirty, self.trackers, HERE).items():
            affected |= self.table.replace(name, ports)
        self.written = frozenset(self.table.services) | self.kernel.keys() if self.needs_full else frozenset(affected)
        self.shown = {name: self.owned(self.table, name) for name in self.written}

    def finish_sync(self) -> None:
        if self.running is not None:
            self.kernel.update(self.shown)
            self.trackers.commit(self.running)
            self.running, self.needs_full = None, False

    def fail_sync(self) -> None:
        """Any part of it may have been written."""
        if self.running is not None:
            for name in sorted(self.written)[::2]:
                self.kernel[name] = self.shown[name]
            self.running, self.needs_full = None, True

    @staticmethod
    def owned(table: ServiceTable, name: ServiceName) -> tuple[object, ...]:
        return tuple((port, table.owned_frontends(port)) for port in table.ports_of(name))


def fresh_table(things: Sequence[Object]) -> ServiceTable:
    trackers, table = Trackers("n1"), ServiceTable()
    for thing in things:
        trackers.update(changed(thing))  # type: ignore[arg-type]
    for name, ports in resolve(trackers.service_names, trackers, HERE).items():
        table.replace(name, ports)
    return table


STEPS = st.lists(st.sampled_from(("nothing", "sync", "sync", "begin", "finish", "fail")), min_size=20, max_size=20)


@given(histories(), STEPS)
@settings(max_examples=400)
def test_any_history_of_the_same_objects_gives_the_same_table(
    case: tuple[list[tuple[str, Object | None]], dict[str, Object]], steps: list[str]
):
    (history, final), rig = case, Rig()
    latest: dict[str, Object | None] = {}
    for (name, thing), step in zip(history, steps, strict=False):
        rig.take(name, thing, latest.get(name))
        latest[name] = thing
        rig.step(step)
    rig.step("sync")
    fresh = fresh_table(list(final.values()))
    assert rig.table == fresh
    assert {name: held for name, held in rig.kernel.items() if held} == {
        name: Rig.owned(fresh, name) for name in fresh.services
    }
    assert not rig.trackers.has_pending


@given(histories(), st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_table(
    case: tuple[list[tuple[str, Object | None]], dict[str, Object]], random: object
):
    things = list(case[1].values())
    shuffled = list(things)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = fresh_table(things), fresh_table(shuffled)
    assert first == second
    assert [Rig.owned(first, name) for name in sorted(first.services)] == [
        Rig.owned(second, name) for name in sorted(second.services)
    ]
