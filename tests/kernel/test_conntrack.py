"""UDP clients that keep their socket follow their Service to new backends: real rules, flows and clean-ups."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kbpf.clock import SystemClock
from kbpf.config import ConntrackSettings
from kbpf.host.addresses import local_addresses
from kbpf.host.conntrack import KernelConntrack
from kbpf.host.sysctl import ConntrackTuning, KernelSysctls, Sysctl
from kbpf.host.udp_cleanup import CleanedFlows, UdpCleanup
from kbpf.model.address import Family
from kbpf.model.objects import EndpointSlice, Service
from tests.builders import endpoint_slice, port, service, service_name, slice_port, table_of, trackers_of
from tests.conntrack_entries import TrackedFlow, create, forget_unanswered
from tests.kernel.world import World, backends, destination, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

DNS = service("dns", port(53, "d", "UDP", node_port=30053), cluster_ips=["10.96.0.10", "fd96::10"], type="NodePort")
OLD, NEW = ("10.42.1.10", "fd42:1::10"), ("10.42.1.11", "fd42:1::11")
FLOWS = [
    pytest.param("pod 10.42.1.100", "10.96.0.10:53", id="pod to cluster IP"),
    pytest.param("host", "10.96.0.10:53", id="host to cluster IP"),
    pytest.param("outside", "192.168.60.11:30053", id="outside to node port"),
    pytest.param("pod 10.42.1.100", "[fd96::10]:53", id="pod to cluster IP, IPv6"),
    pytest.param("outside", "[fd60::11]:30053", id="outside to node port, IPv6"),
]


@pytest.fixture
def dns_world(world: World) -> World:
    world.pod("10.42.1.100", "fd42:1::100")
    for pair in (OLD, NEW):
        world.pod(*pair)
    world.serve(*(backend(address) + "/udp" for address in OLD + NEW))
    return world


def backend(address: str) -> str:
    return f"[{address}]:5353" if ":" in address else f"{address}:5353"


def iptables(world: World, family: Family, *arguments: str) -> None:
    tool = "iptables" if family is Family.IPV4 else "ip6tables"
    command = ["nsenter", f"--net={world.node.namespace.path}", tool, "-w", "5", "-t", "nat", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def write_rules(world: World, to: str, endpoints: Sequence[str]) -> None:
    """The least that a service proxy would write for one frontend: all of its rules anew."""
    address, number, _ = destination(to)
    family = Family.IPV6 if ":" in address else Family.IPV4
    for chain in ("PREROUTING", "OUTPUT"):
        iptables(world, family, "-F", chain)
        # Nothing is tracked in a namespace without a rule that needs it.
        iptables(world, family, "-A", chain, "-m", "conntrack", "--ctstate", "INVALID", "-j", "RETURN")
        for target in (each for each in endpoints if (":" in each) == (":" in address)):
            match = ("-p", "udp", "-d", address, "--dport", str(number))
            iptables(world, family, "-A", chain, *match, "-j", "DNAT", "--to-destination", backend(target))


def clean(world: World, *objects: Service | EndpointSlice) -> int:
    """What a sync of a new process does after its rules are written; returns how many flows were forgotten."""
    cleanup = UdpCleanup(KernelConntrack(), SystemClock())
    cleanup.note([service_name("dns")], table_of(*objects), trackers_of(*objects))
    with world.node.namespace.entered():
        return sum(cleaned.deleted for cleaned in cleanup.clean(repaired=False))


def slices(*addresses: str) -> list[EndpointSlice]:
    ports = (slice_port(5353, "d", "UDP"),)
    v6 = [address for address in addresses if ":" in address]
    v4 = [address for address in addresses if ":" not in address]
    return [endpoint_slice("dns", *v4, ports=ports), endpoint_slice("dns", *v6, ports=ports, family="IPv6")]


@pytest.mark.parametrize(("origin", "to"), FLOWS)
def test_a_client_with_one_socket_follows_its_service_to_a_new_backend(dns_world: World, origin: str, to: str):
    write_rules(dns_world, to, OLD)
    client = dns_world.sessions(origin, f"{to}/udp", source_port=40001)
    assert backends(client.ping()) < set(map(backend, OLD))
    write_rules(dns_world, to, NEW)
    assert backends(client.ping()) < set(map(backend, OLD)), "the kernel remembers the flow"
    assert clean(dns_world, DNS, *slices(*NEW)) == 1
    assert backends(client.ping()) < set(map(backend, NEW))
    assert clean(dns_world, DNS, *slices(*NEW)) == 0


@pytest.mark.parametrize(("origin", "to"), FLOWS)
def test_a_client_that_sent_before_there_was_an_endpoint_is_served_when_one_comes(
    dns_world: World, origin: str, to: str
):
    write_rules(dns_world, to, ())
    client = dns_world.sessions(origin, f"{to}/udp", source_port=40002, timeout_s=0.2)
    assert backends(client.ping()) == {None}
    write_rules(dns_world, to, NEW)
    assert clean(dns_world, DNS, *slices(*NEW)) == 1
    assert backends(client.ping()) < set(map(backend, NEW))


def test_what_was_tried_in_vain_is_forgotten_and_nothing_else(dns_world: World):
    """`forget_unanswered`, with which tests begin that count failures."""
    to = "10.96.0.10:53"
    write_rules(dns_world, to, OLD)
    staying = dns_world.sessions("pod 10.42.1.100", f"{to}/udp", source_port=40003)
    assert backends(staying.ping()) == {backend(OLD[0])}
    write_rules(dns_world, to, ())
    early = dns_world.sessions("pod 10.42.1.100", f"{to}/udp", source_port=40005, timeout_s=0.2)
    assert backends(early.ping()) == {None}
    write_rules(dns_world, to, NEW)
    assert backends(early.ping()) == {None}, "the kernel remembers that nothing translated the flow"
    with dns_world.node.namespace.entered():
        forget_unanswered()
    assert backends(early.ping()) == {backend(NEW[0])}
    assert backends(staying.ping()) == {backend(OLD[0])}


@pytest.mark.parametrize(
    ("datapath", "kinds"), [("iptables", ("pod", "host", "outside")), ("ebpf", ("outside",))], ids=["rules", "programs"]
)
def test_clients_follow_a_running_proxy_through_every_change(
    dns_world: World, tmp_path: Path, datapath: str, kinds: tuple[str, ...]
):
    manifests = write_manifests(tmp_path / "manifests", DNS, *slices(*OLD))
    proxy = dns_world.proxy(manifests, f"--datapath={datapath}", "--iptables-min-sync-period=0s")
    clients = [
        dns_world.sessions(origin, f"{to}/udp", source_port=40004, timeout_s=0.3)
        for origin, to in (flow.values for flow in FLOWS)
        if str(origin).startswith(kinds)
    ]
    for client in clients:
        assert backends(client.ping()) < set(map(backend, OLD))
    for endpoints in (NEW, (), OLD):
        syncs = len(proxy.syncs())
        write_manifests(manifests, DNS, *slices(*endpoints))
        proxy.wait_for_sync(syncs)
        served = set(map(backend, endpoints)) or {None}
        for client in clients:
            eventually(lambda: backends(client.ping()) <= served, timeout_s=5)  # noqa: B023  (called at once)


def test_flows_to_endpoints_that_stay_are_not_touched(dns_world: World):
    to = "10.96.0.10:53"
    write_rules(dns_world, to, OLD)
    staying = dns_world.sessions("pod 10.42.1.100", f"{to}/udp", source_port=40003)
    assert backends(staying.ping()) == {backend(OLD[0])}
    write_rules(dns_world, to, NEW)
    assert clean(dns_world, DNS, *slices(*OLD, *NEW)) == 0
    assert backends(staying.ping()) == {backend(OLD[0])}


def test_flows_in_a_conntrack_zone_are_deleted_in_their_zone(world: World):
    flow = TrackedFlow("10.42.1.9", 40001, "10.96.0.10", 53, "10.42.1.99", 5353)
    conntrack = KernelConntrack()
    with world.node.namespace.entered():
        create([flow, flow._replace(zone=7)])
        [one, other] = conntrack.list_udp(Family.IPV4)
        assert [conntrack.delete([entry]) for entry in (other, other, one)] == [1, 0, 1]


def test_twenty_thousand_flows_are_cleaned_at_once(world: World, record_property: Callable[[str, object], None]):
    """Prints its time (`pytest -s`) and asserts none: machines differ."""
    flows = [
        TrackedFlow(f"10.42.{number >> 8}.{number & 255}", 4000, "10.96.0.10", 53, (OLD, NEW)[number % 2][0], 5353)
        for number in range(20_000)
    ]
    cleanup = UdpCleanup(KernelConntrack(), SystemClock())
    objects = (DNS, *slices(*NEW))
    cleanup.note([service_name("dns")], table_of(*objects), trackers_of(*objects))
    with world.node.namespace.entered():
        create(flows)
        started = time.process_time()
        cleaned: CleanedFlows = cleanup.clean(repaired=False)[0]
    report = (
        f"{cleaned.deleted} of 20000 flows in {cleaned.duration_s:.3f} s, {time.process_time() - started:.3f} s CPU"
    )
    record_property("clean-up", report)
    print(report)
    assert cleaned.deleted == 10_000


def test_a_namespace_gets_the_time_outs_of_kube_proxy_and_keeps_the_machine_s_table(world: World):
    sysctls = KernelSysctls()
    with world.node.namespace.entered():
        size = sysctls.read(Sysctl.CONNTRACK_MAX)
        ConntrackTuning(ConntrackSettings(), sysctls, cores=1 << 10).run()
        assert sysctls.read(Sysctl.TCP_TIMEOUT_ESTABLISHED) == 86400
        assert sysctls.read(Sysctl.TCP_TIMEOUT_CLOSE_WAIT) == 3600
        assert sysctls.read(Sysctl.CONNTRACK_MAX) == size


def test_the_addresses_of_a_node_are_those_of_its_namespace(world: World):
    world.node.namespace.ip("addr add 10.9.0.1 peer 10.9.0.2/32 dev eth0", "addr add fd09::1 peer fd09::2 dev eth0")
    with world.node.namespace.entered():
        assert local_addresses() == {"127.0.0.1", "::1", *world.node.addresses, "10.9.0.1", "fd09::1"}
