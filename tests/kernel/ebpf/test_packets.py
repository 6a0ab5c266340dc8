"""The packet programs on single packets: what becomes of each, there and back, in both families."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.shapes import (
    ConfigFlag,
    ConfigValue,
    FlowDirection,
    FlowSeen,
    FlowValue,
    FrontendFlag,
    IndexKey,
    Kind,
    LocalAddrKey,
    LocalAddrValue,
    LocalFlag,
    Reason,
    SourceRangeKey,
    SourceRangeValue,
    Verdict,
    View,
)
from kbpf.model.address import Address, packed
from tests.kernel.ebpf import testrun
from tests.kernel.ebpf.packets import (
    ICMP,
    IP,
    TCP,
    UDP,
    Ends,
    Ether,
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPerror,
    IPerror6,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    Packet,
    Raw,
    TCPerror,
    UDPerror,
    datagram,
    ends,
    frame,
    has_right_checksums,
    ip,
    segment,
)
from tests.kernel.ebpf.testrun import DROP, NEXT, REDIRECT
from tests.kernel.ebpf.world import TCP as TCP_NUMBER
from tests.kernel.ebpf.world import UDP as UDP_NUMBER
from tests.kernel.ebpf.world import Backend, Frontend, node_port, put_generation, put_service

pytestmark = [pytest.mark.root, pytest.mark.kernels("ebpf")]

MARK = 0x4000
PORT = 30080
PROTOCOLS = {"tcp": TCP_NUMBER, "udp": UDP_NUMBER}


@dataclass(frozen=True)
class Net:
    """The addresses of one family."""

    client: str
    node: str
    vip: str
    cluster_ip: str
    pods: tuple[str, str]
    any: str
    router: str


NETS = {
    "v4": Net(
        "198.51.100.9", "192.168.60.11", "203.0.113.5", "10.96.0.10", ("10.42.1.5", "10.42.2.5"), "0.0.0.0", "192.0.2.1"
    ),
    "v6": Net(
        "2001:db8:51::9", "fd60::11", "2001:db8:5::5", "fd96::10", ("fd42:1::5", "fd42:2::5"), "::", "2001:db8::1"
    ),
}


class Device:
    """The programs of one device, and what its packets meet in the maps."""

    def __init__(self, maps: Maps, programs: Path, net: Net) -> None:
        self.maps, self.programs, self.net = maps, programs, net

    def arrive(self, packet: Packet, program: str = "tc_ingress", **how: int) -> testrun.Result:
        return testrun.run(self.programs / program, bytes(packet), **how)

    def leave(self, packet: Packet) -> testrun.Result:
        return testrun.run(self.programs / "tc_egress", bytes(packet))

    def serve(
        self, *frontends: Frontend, protocol: str = "tcp", service_id: int = 20, pods: int = 1, **how: object
    ) -> None:
        backends = tuple(Backend(100 + number, pod) for number, pod in enumerate(self.net.pods[:pods]))
        put_service(self.maps, service_id, frontends, backends, protocols=[PROTOCOLS[protocol]], **how)

    def configure(self, flags: ConfigFlag = ConfigFlag.MASQUERADES) -> None:
        addresses = [packed(Address(NETS[family].node)) for family in ("v4", "v6")]
        self.maps.config.update({IndexKey(0): ConfigValue(0, 0, 0, *addresses, flags.value, MARK, 30, 120)})

    def counted(self, reason: Reason) -> int:
        return self.maps.packet_stats.read()[reason]

    def rows(self, direction: FlowDirection) -> list[FlowValue]:
        return [value for key, value in self.maps.flows.entries().items() if key.direction == direction]


@pytest.fixture(params=["v4", "v6"])
def device(request: pytest.FixtureRequest, maps: Maps, programs: Path) -> Device:
    found = Device(maps, programs, NETS[request.param])
    found.configure()
    maps.local_addr.update({LocalAddrKey(packed(Address(found.net.node))): LocalAddrValue(LocalFlag.NODE_PORT)})
    return found


@pytest.fixture
def device4(maps: Maps, programs: Path) -> Device:
    found = Device(maps, programs, NETS["v4"])
    found.configure()
    return found


def external(net: Net, **fields: object) -> Frontend:
    return Frontend(net.vip, 80, Kind.LOAD_BALANCER_IP, **fields)


def local(net: Net, **fields: object) -> Frontend:
    """Under externalTrafficPolicy Local."""
    return external(net, external_view=View.LOCAL, external_verdict=Verdict.DROP, **fields)


def to_vip(net: Net, port: int = 40000) -> Ends:
    return Ends(net.client, port, net.vip, 80)


def translated(result: testrun.Result) -> Ends:
    """The ends of a packet that was rewritten, rightly."""
    assert result.verdict == NEXT
    assert has_right_checksums(result.packet)
    return ends(Ether(result.packet))


def is_untouched(packet: Packet, result: testrun.Result) -> bool:
    return (result.verdict, result.packet, result.mark) == (NEXT, bytes(packet), 0)


MAKE = {"tcp": segment, "udp": datagram}


# ---- there and back


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_packet_goes_to_a_backend_and_the_answer_comes_from_the_frontend(device: Device, protocol: str) -> None:
    device.serve(external(device.net), protocol=protocol)
    make, there = MAKE[protocol], to_vip(device.net)
    result = device.arrive(make(there, payload=b"odd"))
    assert translated(result) == (device.net.client, 40000, device.net.pods[0], 8080)
    assert result.mark == MARK
    answer = Ends(device.net.pods[0], 8080, device.net.client, 40000)
    packet = datagram(answer, b"answer") if protocol == "udp" else segment(answer, "SA")
    assert translated(device.leave(packet)) == there.swapped


@pytest.mark.parametrize("apart", [ConfigFlag(0), ConfigFlag.STANDS_APART])
def test_a_node_port_and_a_cluster_ip_are_served_too(device: Device, apart: ConfigFlag) -> None:
    device.configure(ConfigFlag.MASQUERADES | apart)
    device.serve(node_port(PORT, device.net.any), Frontend(device.net.cluster_ip))
    for address, port in ((device.net.node, PORT), (device.net.cluster_ip, 80)):
        result = device.arrive(segment(Ends(device.net.client, 10000 + port, address, port)))
        assert translated(result).destination == device.net.pods[0]


def test_an_ip_header_with_options_is_understood(device4: Device) -> None:
    device4.serve(external(device4.net))
    packet = segment(to_vip(device4.net), options=b"\x94\x04\x00\x00")
    assert translated(device4.arrive(packet)).destination == device4.net.pods[0]


def test_the_programs_for_devices_without_an_ethernet_header_see_the_same(device: Device, programs: Path) -> None:
    device.serve(external(device.net))
    raw = bytes(segment(to_vip(device.net)).payload)
    # The kernel's own test run insists on an Ethernet header: nothing of it may be read or written.
    result = testrun.run(programs / "tc_ingress_raw", bytes(segment(to_vip(device.net))))
    assert (result.verdict, result.packet[14:]) == (NEXT, raw)


def test_on_a_bridge_a_translated_packet_arrives_anew_and_only_once(device: Device) -> None:
    """Services that lead to each other would keep a packet in the kernel for ever."""
    vip, other = (device.net.vip, 80), (device.net.router, 80)
    for service_id, (frontend, backend) in ((20, (vip, other)), (21, (other, vip))):
        made = Frontend(frontend[0], 80, Kind.EXTERNAL_IP)
        put_service(device.maps, service_id, [made], (Backend(service_id + 100, *backend),))
    first = device.arrive(segment(to_vip(device.net)), "tc_ingress_bridge")
    assert (first.verdict, ends(Ether(first.packet)).destination) == (REDIRECT, device.net.router)
    assert has_right_checksums(first.packet)
    again = testrun.run(device.programs / "tc_ingress_bridge", first.packet)
    assert (again.verdict, again.packet) == (NEXT, first.packet)


def test_on_a_bridge_what_is_not_translated_goes_on(device: Device) -> None:
    device.serve(local(device.net))
    assert device.arrive(segment(to_vip(device.net)), "tc_ingress_bridge").verdict == DROP
    other = segment(to_vip(device.net)._replace(destination_port=81))
    assert is_untouched(other, device.arrive(other, "tc_ingress_bridge"))


# ---- who is masqueraded


@pytest.mark.parametrize("program", ["tc_ingress_pods", "tc_ingress_pods_bridge"])
def test_who_sends_by_a_device_of_pods_is_a_client_inside(device: Device, program: str) -> None:
    device.configure(ConfigFlag.MASQUERADES | ConfigFlag.DETECTS_PODS4 | ConfigFlag.DETECTS_PODS6)
    device.serve(Frontend(device.net.cluster_ip), local(device.net))
    for address in (device.net.cluster_ip, device.net.vip):
        result = device.arrive(segment(Ends(device.net.client, 40000, address, 80)), program)
        assert (ends(Ether(result.packet)).destination, result.mark) == (device.net.pods[0], 0)


def test_a_local_policy_keeps_the_clients_address_and_to_local_backends(device: Device) -> None:
    everywhere = tuple(Backend(100 + number, pod) for number, pod in enumerate(device.net.pods))
    put_service(device.maps, 20, [local(device.net)], everywhere, local=everywhere[:1])
    for port in range(40000, 40020):
        result = device.arrive(segment(to_vip(device.net, port)))
        assert (translated(result).destination, result.mark) == (device.net.pods[0], 0)


def test_a_pod_elsewhere_is_a_client_inside(device: Device) -> None:
    """kube-proxy's short circuit: the cluster list even under a Local policy, and no masquerade."""
    device.serve(local(device.net))
    prefix = 32 + (96 + 24 if device.net is NETS["v4"] else 64)
    key = SourceRangeKey(prefix, 0, packed(Address(device.net.client)))
    assert device.arrive(segment(to_vip(device.net))).verdict == DROP
    device.maps.source_ranges.update({key: SourceRangeValue(0)})
    result = device.arrive(segment(to_vip(device.net)))
    assert (translated(result).destination, result.mark) == (device.net.pods[0], 0)


def test_a_backend_that_reaches_itself_is_masqueraded_whatever_the_policy(device: Device) -> None:
    pod = device.net.pods[0]
    put_service(device.maps, 20, [local(device.net)], (Backend(100, pod),), local=(Backend(100, pod),))
    result = device.arrive(segment(Ends(pod, 40000, device.net.vip, 80)))
    assert (translated(result).destination, result.mark) == (pod, MARK)


def test_clients_of_a_cluster_ip_are_masqueraded_if_pods_can_be_told_from_others(device: Device) -> None:
    device.serve(Frontend(device.net.cluster_ip))
    call = Ends(device.net.client, 40000, device.net.cluster_ip, 80)
    assert device.arrive(segment(call)).mark == 0
    device.configure(ConfigFlag.MASQUERADES | ConfigFlag.DETECTS_PODS4 | ConfigFlag.DETECTS_PODS6)
    assert device.arrive(segment(call._replace(source_port=40001))).mark == MARK
    assert [key.id for key in device.maps.wanted.entries()] == [20]


def test_who_must_be_masqueraded_waits_until_the_rule_is_there(device: Device) -> None:
    device.serve(Frontend(device.net.cluster_ip))
    device.configure(ConfigFlag.DETECTS_PODS4 | ConfigFlag.DETECTS_PODS6)
    packet = segment(Ends(device.net.client, 40000, device.net.cluster_ip, 80))
    assert device.arrive(packet).verdict == DROP
    assert [key.id for key in device.maps.wanted.entries()] == [20]
    device.configure()
    assert device.arrive(packet).verdict == NEXT


def test_a_mark_of_somebody_else_is_kept_and_ours_is_set_until_the_backend_answered(device: Device) -> None:
    device.serve(external(device.net))
    there = to_vip(device.net)
    assert device.arrive(segment(there), mark=0x7).mark == MARK | 0x7
    assert device.arrive(segment(there)).mark == MARK
    device.leave(segment(Ends(device.net.pods[0], 8080, device.net.client, 40000), "SA"))
    assert device.arrive(segment(there, "A")).mark == 0


# ---- no backend


def test_without_a_local_endpoint_a_packet_is_dropped(device: Device) -> None:
    device.serve(local(device.net))
    assert device.arrive(segment(to_vip(device.net))).verdict == DROP


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_call_of_the_node_that_kube_proxy_drops_does_not_leave_it(device: Device, protocol: str) -> None:
    """The hooks let it pass, since no error may be told to the caller."""
    local = Frontend(device.net.cluster_ip, view=View.LOCAL, verdict=Verdict.DROP)
    device.serve(local, protocol=protocol)
    call = MAKE[protocol](Ends(device.net.node, 40000, device.net.cluster_ip, 80))
    assert device.leave(call).verdict == DROP
    device.serve(local._replace(flags=FrontendFlag.DEFER_SOCKETS), protocol=protocol)
    assert is_untouched(call, device.leave(call))
    device.serve(local._replace(verdict=Verdict.REJECT), protocol=protocol)
    assert is_untouched(call, device.leave(call))
    pod = (Backend(100, device.net.pods[0]),)
    put_service(device.maps, 20, [local], pod, local=pod, protocols=[PROTOCOLS[protocol]], generation=2)
    assert is_untouched(call, device.leave(call))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_without_endpoints_the_node_itself_refuses(device: Device, protocol: str) -> None:
    """At port 0 nobody listens; the reset or error that the kernel sends comes from the frontend."""
    device.serve(external(device.net), protocol=protocol, pods=0)
    there, make = to_vip(device.net), MAKE[protocol]
    result = device.arrive(make(there))
    assert (translated(result), result.mark) == ((device.net.client, 40000, device.net.node, 0), 0)
    if protocol == "tcp":
        reset = segment(Ends(device.net.node, 0, device.net.client, 40000), "RA")
        assert translated(device.leave(reset)) == there.swapped


def test_a_node_port_without_endpoints_is_refused_on_closed_addresses_too(device: Device) -> None:
    device.maps.local_addr.update({LocalAddrKey(packed(Address(device.net.node))): LocalAddrValue(0)})
    device.serve(node_port(PORT, device.net.any))
    packet = segment(Ends(device.net.client, 40000, device.net.node, PORT))
    assert is_untouched(packet, device.arrive(packet))
    device.serve(node_port(PORT, device.net.any), pods=0, generation=2)
    assert translated(device.arrive(packet)).destination_port == 0


# ---- source ranges


def test_source_ranges_let_in_who_is_in_one_and_drop_others(device: Device) -> None:
    is_v4 = device.net is NETS["v4"]
    device.serve(external(device.net, flags=FrontendFlag.SOURCE_RANGES))
    assert device.arrive(segment(to_vip(device.net))).verdict == DROP
    other = SourceRangeKey(32 + (96 + 8 if is_v4 else 16), 21, packed(Address(device.net.client)))
    device.maps.source_ranges.update({other: SourceRangeValue(21)})
    assert device.arrive(segment(to_vip(device.net))).verdict == DROP
    device.maps.source_ranges.update({other._replace(service_id=20): SourceRangeValue(20)})
    assert translated(device.arrive(segment(to_vip(device.net)))).destination == device.net.pods[0]
    assert device.counted(Reason.SOURCE_RANGE) >= 2


# ---- what is left alone


def untouched_packets(net: Net) -> dict[str, Packet]:
    there = to_vip(net)
    return {
        "another port": segment(there._replace(destination_port=81)),
        "another address": segment(there._replace(destination=net.router)),
        "the middle of a connection": segment(there, "A", b"data"),
        "an answer to a SYN": segment(there, "SA"),
        "a datagram to a TCP frontend": datagram(there),
        "an echo": frame() / ip(net.client, net.vip) / (ICMP() if "." in net.client else Raw(b"\x80\0\0\0")),
        "SCTP": frame() / ip(net.client, net.vip, **{"proto" if "." in net.client else "nh": 132}) / Raw(bytes(12)),
        "cut off": frame() / ip(net.client, net.vip, **{"proto" if "." in net.client else "nh": 6}) / Raw(b"\x9c"),
    }


@pytest.mark.parametrize("what", sorted(untouched_packets(NETS["v4"])))
def test_what_is_not_handled_leaves_byte_for_byte(device: Device, what: str) -> None:
    device.serve(external(device.net))
    packet = untouched_packets(device.net)[what]
    for result in (device.arrive(packet), device.leave(packet)):
        assert is_untouched(packet, result)


def test_a_deferred_frontend_is_left_alone(device: Device) -> None:
    device.serve(external(device.net, flags=FrontendFlag.DEFER_PACKETS))
    packet = segment(to_vip(device.net))
    assert is_untouched(packet, device.arrive(packet))
    assert device.counted(Reason.DEFERRED) > 0


def test_a_cluster_ip_that_is_an_address_of_this_node_is_left_alone(device: Device) -> None:
    device.serve(Frontend(device.net.node))
    packet = segment(Ends(device.net.client, 40000, device.net.node, 80))
    assert is_untouched(packet, device.arrive(packet))


def test_neighbour_discovery_and_arp_are_left_alone(device: Device) -> None:
    for packet in (frame(type=0x0806) / Raw(bytes(28)), frame() / IPv6(src="fe80::1", dst="ff02::1") / Raw(b"\x87")):
        assert is_untouched(packet, device.arrive(packet))


# ---- flows


def test_a_connection_stays_with_its_backend_while_backends_come_and_go(device: Device) -> None:
    device.serve(external(device.net), pods=2)
    there = to_vip(device.net)
    first = translated(device.arrive(segment(there))).destination
    other = next(pod for pod in device.net.pods if pod != first)
    put_generation(device.maps, 20, (Backend(300, other),), generation=2)
    for flags in ("A", "PA", "FA"):
        assert translated(device.arrive(segment(there, flags, b"data"))).destination == first


def test_a_repeated_syn_goes_to_the_same_backend(device: Device) -> None:
    device.serve(external(device.net), pods=2)
    destinations = {translated(device.arrive(segment(to_vip(device.net)))).destination for _ in range(20)}
    assert len(destinations) == 1


def test_a_syn_chooses_again_when_its_backend_is_gone(device: Device) -> None:
    device.serve(external(device.net), pods=2)
    first = translated(device.arrive(segment(to_vip(device.net)))).destination
    left = next(Backend(100 + n, pod) for n, pod in enumerate(device.net.pods) if pod != first)
    put_generation(device.maps, 20, (left,), generation=2)
    assert translated(device.arrive(segment(to_vip(device.net)))).destination == left.address
    assert len(device.rows(FlowDirection.FROM_BACKEND)) == 1


@pytest.mark.parametrize("who", ["client", "backend"])
@pytest.mark.parametrize("flags", ["FA", "R"])
def test_a_syn_chooses_again_when_the_connection_before_it_is_closing(device: Device, who: str, flags: str) -> None:
    device.serve(external(device.net), pods=2)
    there, destinations = to_vip(device.net), set()
    for _ in range(20):
        pod = translated(device.arrive(segment(there))).destination
        destinations.add(pod)
        if who == "client":
            device.arrive(segment(there, flags))
        else:
            device.leave(segment(Ends(pod, 8080, device.net.client, 40000), flags))
    assert destinations == set(device.net.pods)


def test_a_port_that_is_used_again_has_a_new_connection_in_the_rows_of_the_old_one(device: Device) -> None:
    device.serve(external(device.net))
    there = to_vip(device.net)
    for _ in range(2):
        first = device.arrive(segment(there))
        answer = translated(first).swapped
        assert first.mark == MARK
        assert [row.seen for row in device.rows(FlowDirection.FROM_CLIENT)] == [FlowSeen.PACKET | FlowSeen.SYN]
        assert [row.seen for row in device.rows(FlowDirection.FROM_BACKEND)] == [0]
        assert translated(device.leave(segment(answer, "SA"))) == there.swapped
        assert device.arrive(segment(there, "FA")).mark == 0
        device.leave(segment(answer, "FA"))


def test_a_port_that_is_used_again_keeps_what_the_backend_sees_of_it(device: Device) -> None:
    device.serve(external(device.net), Frontend(device.net.node, 81, Kind.EXTERNAL_IP))
    device.arrive(segment(to_vip(device.net)))
    call = Ends(device.net.client, 40000, device.net.node, 81)
    for _ in range(2):
        seen = translated(device.arrive(segment(call)))
        assert seen.source_port != 40000
        assert translated(device.leave(segment(seen.swapped, "SA"))) == call.swapped
        device.arrive(segment(call, "R"))
    assert len(device.rows(FlowDirection.FROM_BACKEND)) == 2


def test_datagrams_stay_with_their_backend_until_it_leaves(device: Device) -> None:
    device.serve(external(device.net), protocol="udp", pods=2)
    destinations = {translated(device.arrive(datagram(to_vip(device.net)))).destination for _ in range(20)}
    assert len(destinations) == 1
    left = next(Backend(100 + n, pod) for n, pod in enumerate(device.net.pods) if pod not in destinations)
    put_generation(device.maps, 20, (left,), protocol=UDP_NUMBER, generation=2)
    assert translated(device.arrive(datagram(to_vip(device.net)))).destination == left.address


def test_two_frontends_with_one_backend_keep_their_answers_apart(device: Device) -> None:
    second = Frontend(device.net.node, 81, Kind.EXTERNAL_IP)
    device.serve(external(device.net), second)
    calls = [to_vip(device.net), Ends(device.net.client, 40000, device.net.node, 81)]
    seen = [translated(device.arrive(segment(call))) for call in calls]
    assert [each.destination for each in seen] == [device.net.pods[0]] * 2
    assert seen[0].source_port == 40000 != seen[1].source_port
    for call, each in zip(calls, seen, strict=True):
        assert translated(device.leave(segment(each.swapped, "SA"))) == call.swapped
        assert translated(device.arrive(segment(call, "A"))) == each


def test_a_lost_row_is_made_again_from_the_other_one(device: Device) -> None:
    device.serve(external(device.net))
    there, answer = to_vip(device.net), Ends(device.net.pods[0], 8080, device.net.client, 40000)
    device.arrive(segment(there))
    rows = device.maps.flows.entries()
    for key, value in rows.items():
        device.maps.flows.update({key: value._replace(last_seen_s=value.last_seen_s - 5)})
    device.maps.flows.delete([key for key in rows if key.direction == FlowDirection.FROM_CLIENT])
    assert translated(device.leave(segment(answer, "A"))) == there.swapped
    assert translated(device.arrive(segment(there, "A"))) == answer.swapped
    device.maps.flows.delete([key for key in rows if key.direction == FlowDirection.FROM_BACKEND])
    [(key, value)] = device.maps.flows.entries().items()
    device.maps.flows.update({key: value._replace(last_seen_s=value.last_seen_s - 5)})
    device.arrive(segment(there, "A"))
    assert translated(device.leave(segment(answer, "A"))) == there.swapped


def test_an_idle_udp_flow_chooses_again(device: Device) -> None:
    device.serve(external(device.net), protocol="udp", pods=2)
    destinations = set()
    for _ in range(30):
        destinations.add(translated(device.arrive(datagram(to_vip(device.net)))).destination)
        # The time is the machine's uptime, which may be short.
        idle = {
            key: each._replace(last_seen_s=max(0, each.last_seen_s - 31))
            for key, each in device.maps.flows.entries().items()
        }
        device.maps.flows.update(idle)
    assert destinations == set(device.net.pods)


def test_session_affinity_follows_the_clients_address(device: Device) -> None:
    device.serve(external(device.net), node_port(PORT, device.net.any), pods=2, affinity_timeout_s=60)
    calls = [to_vip(device.net, port) for port in range(40000, 40020)]
    calls += [Ends(device.net.client, port, device.net.node, PORT) for port in range(40000, 40020)]
    assert len({translated(device.arrive(segment(call))).destination for call in calls}) == 1
    assert [key.client for key in device.maps.affinity.entries()] == [packed(Address(device.net.client))]


def test_a_masqueraded_backends_answer_is_no_call_of_a_node_port(device: Device) -> None:
    """The kernel may have given the flow a source port on this node that is also a node port."""
    device.serve(external(device.net), protocol="udp")
    device.serve(node_port(PORT, device.net.any), protocol="udp", service_id=21)
    device.arrive(datagram(to_vip(device.net)))
    answer = datagram(Ends(device.net.pods[0], 8080, device.net.node, PORT))
    assert is_untouched(answer, device.arrive(answer))
    call = datagram(Ends(device.net.pods[1], 8080, device.net.node, PORT))
    assert not is_untouched(call, device.arrive(call))


# ---- fragments, extension headers, checksums


def pieces(between: Ends, payload: bytes, number: int = 77, size: int = 512) -> list[Packet]:
    """The fragments of a datagram, the first one first."""
    head = ip(between.source, between.destination)
    udp = bytes((head / UDP(sport=between.source_port, dport=between.destination_port) / Raw(payload)).build())
    udp = udp[len(bytes(head)) :]
    found = []
    for start in range(0, len(udp), size):
        piece, more = udp[start : start + size], start + size < len(udp)
        if IP in head:
            fields = {"id": number, "proto": 17, "frag": start // 8, "flags": "MF" if more else 0}
            found.append(frame() / ip(between.source, between.destination, **fields) / Raw(piece))
        else:
            extension = IPv6ExtHdrFragment(id=number, offset=start // 8, m=int(more), nh=17)
            found.append(frame() / ip(between.source, between.destination) / extension / Raw(piece))
    return found


def put_together(raws: list[bytes]) -> bytes:
    """The datagram of these fragments; both addresses are those of all of them."""
    packets = [Ether(raw).payload for raw in raws]
    assert len({(packet.src, packet.dst) for packet in packets}) == 1
    head = packets[0]
    if isinstance(head, IP):
        return bytes(IP(src=head.src, dst=head.dst, proto=17) / b"".join(bytes(packet.payload) for packet in packets))
    payload = b"".join(bytes(packet[IPv6ExtHdrFragment].payload) for packet in packets)
    return bytes(IPv6(src=head.src, dst=head.dst, nh=17) / payload)


@pytest.mark.parametrize("way", ["arrive", "leave"])
def test_fragments_follow_the_first_one(device: Device, way: str) -> None:
    device.serve(external(device.net), protocol="udp")
    between, expected = to_vip(device.net), Ends(device.net.client, 40000, device.net.pods[0], 8080)
    if way == "leave":
        device.arrive(datagram(between))
        between, expected = expected.swapped, between.swapped
    results = [getattr(device, way)(packet) for packet in pieces(between, bytes(range(256)) * 5)]
    assert len(results) == 3
    assert {result.verdict for result in results} == {NEXT}
    layer = IP if device.net is NETS["v4"] else IPv6
    whole = put_together([result.packet for result in results])
    assert has_right_checksums(whole, layer)
    assert ends(layer(whole)) == expected


def test_a_fragment_that_overtook_the_first_one_goes_back_in_the_queue(device: Device) -> None:
    device.serve(external(device.net), protocol="udp")
    first, later = pieces(to_vip(device.net), bytes(600))
    early = device.arrive(later)
    assert (early.verdict, early.packet) == (REDIRECT, bytes(later))
    assert device.arrive(first).verdict == NEXT
    assert Ether(device.arrive(later).packet).payload.dst == device.net.pods[0]
    assert device.counted(Reason.OVERTOOK) > 0


def test_a_later_fragment_on_its_way_out_is_left_alone_without_the_first_one(device: Device) -> None:
    _, later = pieces(Ends(device.net.pods[0], 8080, device.net.client, 40000), bytes(600))
    assert is_untouched(later, device.leave(later))


def test_fragments_of_two_datagrams_do_not_mix(device: Device) -> None:
    device.serve(external(device.net), protocol="udp")
    one, other = (pieces(to_vip(device.net), bytes(600), number) for number in (77, 78))
    device.arrive(one[0])
    assert device.arrive(other[1]).verdict == REDIRECT
    assert device.arrive(one[1]).verdict == NEXT


def test_an_id_that_is_used_again_is_no_old_datagrams(device: Device) -> None:
    device.serve(external(device.net), protocol="udp")
    first, later = pieces(to_vip(device.net), bytes(600))
    device.arrive(first)
    rows = device.maps.fragments.entries()
    device.maps.fragments.update({key: row._replace(seen_s=row.seen_s - 31) for key, row in rows.items()})
    assert device.arrive(later).verdict == REDIRECT


def test_extension_headers_are_walked_and_their_number_is_bounded(maps: Maps, programs: Path) -> None:
    device = Device(maps, programs, NETS["v6"])
    device.configure()
    device.serve(external(device.net))
    head = frame() / IPv6(src=device.net.client, dst=device.net.vip)
    tcp = TCP(sport=40000, dport=80, flags="S")
    some = head / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / tcp
    assert translated(device.arrive(some)).destination == device.net.pods[0]
    many = head
    for _ in range(7):
        many /= IPv6ExtHdrDestOpt()
    many /= tcp
    assert is_untouched(many, device.arrive(many))


def test_an_udp_datagram_without_a_checksum_keeps_being_without(device4: Device) -> None:
    device4.serve(external(device4.net), protocol="udp")
    packet = datagram(to_vip(device4.net))
    packet[UDP].chksum = 0
    result = Ether(device4.arrive(packet).packet)
    assert (result[IP].dst, result[UDP].dport, result[UDP].chksum) == (device4.net.pods[0], 8080, 0)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_checksums_stay_right_whatever_the_payload(device: Device, protocol: str) -> None:
    device.serve(external(device.net), protocol=protocol)
    for number in range(200):
        call = to_vip(device.net, 30000 + number)
        translated(device.arrive(MAKE[protocol](call, payload=number.to_bytes(2, "big") * (number % 7))))


# ---- ICMP errors


ERRORS4 = {"too big": (3, 4), "unreachable": (3, 3), "time exceeded": (11, 0), "parameter problem": (12, 0)}
ERRORS6 = {"too big": (2, 0), "unreachable": (1, 4), "time exceeded": (3, 0), "parameter problem": (4, 0)}


def error(source: str, about: Packet, kind: str) -> Packet:
    """As a router sends it to the packet's sender: IPv4 quotes eight bytes of the payload, IPv6 all of it."""
    quoted = about.payload
    if isinstance(quoted, IP):
        number, code = ERRORS4[kind]
        return frame() / IP(src=source, dst=quoted.src) / ICMP(type=number, code=code) / Raw(bytes(quoted)[:28])
    number, code = ERRORS6[kind]
    head = frame() / IPv6(src=source, dst=quoted.src)
    return head / ERROR_LAYERS6[number](type=number, code=code) / quoted


ERROR_LAYERS6 = {
    1: ICMPv6DestUnreach,
    2: ICMPv6PacketTooBig,
    3: ICMPv6TimeExceeded,
    4: ICMPv6ParamProblem,
}


def outer_and_quoted(result: testrun.Result) -> tuple[tuple[str, str], Ends]:
    assert result.verdict == NEXT
    assert has_right_checksums(result.packet)
    found = Ether(result.packet)
    quoted = found[IPerror] if IPerror in found else found[IPerror6]
    ports = found[TCPerror] if TCPerror in found else found[UDPerror]
    return (found.payload.src, found.payload.dst), Ends(quoted.src, ports.sport, quoted.dst, ports.dport)


@pytest.mark.parametrize("kind", ERRORS4)
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_an_error_on_the_backends_side_comes_from_the_frontend(device: Device, protocol: str, kind: str) -> None:
    net = device.net
    device.serve(external(net), protocol=protocol)
    device.arrive(MAKE[protocol](to_vip(net)))
    about = MAKE[protocol](Ends(net.client, 40000, net.pods[0], 8080), payload=b"x" * 100)
    result = device.leave(error(net.node, about, kind))
    assert outer_and_quoted(result) == ((net.vip, net.client), to_vip(net))
    if protocol == "udp":
        original = datagram(to_vip(net), b"x" * 100)
        assert Ether(result.packet)[UDPerror].chksum == Ether(bytes(original))[UDP].chksum


@pytest.mark.parametrize("kind", ERRORS4)
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_an_error_on_the_clients_side_reaches_the_backend(device: Device, protocol: str, kind: str) -> None:
    net = device.net
    device.serve(external(net), protocol=protocol)
    device.arrive(MAKE[protocol](to_vip(net)))
    about = MAKE[protocol](to_vip(net).swapped, payload=b"x" * 100)
    result = device.arrive(error(net.router, about, kind))
    assert outer_and_quoted(result) == ((net.router, net.pods[0]), Ends(net.pods[0], 8080, net.client, 40000))


def test_an_error_speaks_of_the_port_that_its_receiver_knows(device: Device) -> None:
    """Of two frontends with one backend the second has another client port on the backend's side."""
    net, second = device.net, Ends(device.net.client, 40000, device.net.node, 81)
    device.serve(external(net), Frontend(net.node, 81, Kind.EXTERNAL_IP))
    device.arrive(segment(to_vip(net)))
    there = translated(device.arrive(segment(second)))
    assert there.source_port != 40000
    assert outer_and_quoted(device.leave(error(net.node, segment(there), "too big")))[1] == second
    about = segment(second.swapped, "A")
    assert outer_and_quoted(device.arrive(error(net.router, about, "too big")))[1] == there.swapped


def test_the_refusal_of_a_datagram_comes_from_the_frontend(device: Device) -> None:
    device.serve(external(device.net), protocol="udp", pods=0)
    refused = translated(device.arrive(datagram(to_vip(device.net))))
    result = device.leave(error(device.net.node, datagram(refused), "unreachable"))
    assert outer_and_quoted(result) == ((device.net.vip, device.net.client), to_vip(device.net))


def test_an_error_about_a_datagram_without_a_checksum_leaves_it_without(device4: Device) -> None:
    net = device4.net
    device4.serve(external(net), protocol="udp")
    device4.arrive(datagram(to_vip(net)))
    about = datagram(Ends(net.client, 40000, net.pods[0], 8080))
    about[UDP].chksum = 0
    result = device4.leave(error(net.node, about, "unreachable"))
    assert outer_and_quoted(result)[1] == to_vip(net)
    assert Ether(result.packet)[UDPerror].chksum == 0


def test_an_error_that_quotes_extension_headers_is_translated(maps: Maps, programs: Path) -> None:
    device = Device(maps, programs, NETS["v6"])
    device.configure()
    net = device.net
    device.serve(external(net))
    device.arrive(segment(to_vip(net)))
    head = frame() / IPv6(src=net.client, dst=net.pods[0]) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
    result = device.leave(error(net.node, head / TCP(sport=40000, dport=8080, flags="S"), "too big"))
    assert outer_and_quoted(result) == ((net.vip, net.client), to_vip(net))


def test_other_messages_of_icmp_are_left_alone(device: Device) -> None:
    device.serve(external(device.net))
    device.arrive(segment(to_vip(device.net)))
    packet = error(device.net.router, segment(to_vip(device.net).swapped, "A"), "too big")
    packet[ICMP if ICMP in packet else ICMPv6PacketTooBig].type = 5 if ICMP in packet else 137
    assert is_untouched(packet, device.arrive(packet))


def test_an_error_about_somebody_elses_flow_is_left_alone(device: Device) -> None:
    net = device.net
    device.serve(external(net))
    about = segment(Ends(net.vip, 80, net.client, 40000))
    packet = error(net.router, about, "too big")
    assert is_untouched(packet, device.arrive(packet))
    assert is_untouched(packet, device.leave(packet))
