"""Session affinity: one client, one backend, for every frontend of the service port, until the timeout."""

import time

import pytest

from kbpf.datapath.ebpf.shapes import AffinityKey, AffinityValue, Kind, View
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import (
    BACKENDS4,
    UDP,
    VIP4,
    Frontend,
    Pod,
    backends,
    namespace_cookie,
    put_generation,
    put_service,
)

pytestmark = pytest.mark.root

SERVICE, OTHER_VIP = 7, "203.0.113.7"
LONG_S = 3600


def client_of(node: Node, pod: Pod) -> bytes:
    """The client of a pod's namespace: a multicast tag, then the cookie in two host-order words."""
    cookie = namespace_cookie(node.maps, pod)
    return b"\xff" * 8 + (cookie >> 32).to_bytes(4, "little") + (cookie & 0xFFFFFFFF).to_bytes(4, "little")


def test_a_client_keeps_its_backend_on_every_frontend_of_the_service(node: Node) -> None:
    frontends = [Frontend(VIP4), Frontend(OTHER_VIP, 80, Kind.EXTERNAL_IP)]
    put_service(node.maps, SERVICE, frontends, backends(BACKENDS4), affinity_timeout_s=LONG_S)
    pod = node.pod()
    pod.serve(BACKENDS4)
    first = pod.ask("request", "tcp", VIP4, 80)[0]
    assert pod.ask("requests", "tcp", VIP4, 80, 20) == {first: 20}
    assert pod.ask("requests", "tcp", OTHER_VIP, 80, 20) == {first: 20}
    assert node.maps.affinity.entries().keys() == {AffinityKey(client_of(node, pod), SERVICE)}


def test_services_do_not_share_affinity(node: Node) -> None:
    for port in range(80, 110):
        put_service(node.maps, port, [Frontend(VIP4, port)], backends(BACKENDS4), affinity_timeout_s=LONG_S)
    pod = node.pod()
    pod.serve(BACKENDS4)
    assert len({pod.ask("request", "tcp", VIP4, port)[0] for port in range(80, 110)}) == len(BACKENDS4)


def test_clients_choose_for_themselves(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], backends(BACKENDS4), affinity_timeout_s=LONG_S)
    for pod in (node.pod(), node.pod()):
        pod.serve(BACKENDS4)
        first = pod.ask("request", "tcp", VIP4, 80)[0]
        assert pod.ask("requests", "tcp", VIP4, 80, 5) == {first: 5}
    assert len(node.maps.affinity.entries()) == 2


def test_affinity_ends_after_the_timeout_and_not_before(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], backends(BACKENDS4), affinity_timeout_s=2)
    pod = node.pod()
    pod.serve(BACKENDS4)
    key = AffinityKey(client_of(node, pod), SERVICE)
    for age_s, stays in ((1.0, True), (2.1, False)):
        # Aged by hand, so that nothing sleeps; 30 tries tell a kept choice from a lucky one.
        answers = set()
        for _ in range(30):
            seen = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(age_s * 1e9)
            node.maps.affinity.update({key: AffinityValue(seen, 2, SERVICE)})
            answers.add(pod.ask("request", "tcp", VIP4, 80)[0])
        assert (answers == {f"{BACKENDS4[1]}:8080"}) is stays


def test_a_new_connection_renews_affinity(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], backends(BACKENDS4), affinity_timeout_s=LONG_S)
    pod = node.pod()
    pod.serve(BACKENDS4)
    key = AffinityKey(client_of(node, pod), SERVICE)
    past = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - 10**9
    node.maps.affinity.update({key: AffinityValue(past, 2, SERVICE)})
    assert pod.ask("request", "tcp", VIP4, 80)[0] == f"{BACKENDS4[1]}:8080"
    renewed = node.maps.affinity.lookup(key)
    assert renewed
    assert renewed.backend_id == 2
    assert renewed.last_seen_ns >= past + 10**9


def test_datagrams_of_one_socket_do_not_renew_affinity(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], backends(BACKENDS4), protocols=[UDP], affinity_timeout_s=LONG_S)
    pod = node.pod()
    pod.serve(BACKENDS4)
    number = pod.ask("open_socket", "udp", "AF_INET")
    key = AffinityKey(client_of(node, pod), SERVICE)
    stamps = []
    for _ in range(2):
        pod.ask("send", number, VIP4, 80)
        pod.ask("receive", number)
        seen = node.maps.affinity.lookup(key)
        assert seen
        stamps.append(seen.last_seen_ns)
    assert stamps[0] == stamps[1]


def test_a_backend_that_left_loses_its_clients(node: Node) -> None:
    put_service(node.maps, SERVICE, [Frontend(VIP4)], backends(BACKENDS4), affinity_timeout_s=LONG_S)
    pod = node.pod()
    pod.serve(BACKENDS4)
    first = pod.ask("request", "tcp", VIP4, 80)[0]
    staying = tuple(each for each in backends(BACKENDS4) if f"{each.address}:8080" != first)
    put_generation(node.maps, SERVICE, staying, generation=2, affinity_timeout_s=LONG_S)
    second = pod.ask("request", "tcp", VIP4, 80)[0]
    assert second != first
    assert pod.ask("requests", "tcp", VIP4, 80, 20) == {second: 20}


def test_affinity_holds_within_the_frontends_own_view_only(node: Node) -> None:
    everywhere, here = backends(BACKENDS4), backends(BACKENDS4)[2:]
    frontends = [Frontend(VIP4, view=View.LOCAL)]
    put_service(node.maps, SERVICE, frontends, everywhere, local=here, affinity_timeout_s=LONG_S)
    pod = node.pod()
    pod.serve(BACKENDS4)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    node.maps.affinity.update({AffinityKey(client_of(node, pod), SERVICE): AffinityValue(now, 1, SERVICE)})
    assert pod.ask("requests", "tcp", VIP4, 80, 10) == {f"{here[0].address}:8080": 10}
