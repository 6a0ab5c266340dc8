"""What the hooks do only when they are asked for: leaving pods alone, and keeping sockets off node ports."""

import errno
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import links, loader, source
from kbpf.datapath.ebpf.filesystem import ensure_bpffs
from kbpf.datapath.ebpf.hooks import NODE_PORT_HOOKS, OTHER_PACKET_PROGRAMS, PACKET_PROGRAMS
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.probe import has_coarse_clock, has_set_retval
from kbpf.datapath.ebpf.shapes import LocalAddrKey, LocalAddrValue, LocalFlag, Reason
from kbpf.model.address import Address, packed
from tests.kernel.ebpf.builds import SMALL, describe
from tests.kernel.ebpf.world import (
    BACKENDS4,
    NODE4,
    NODE6,
    UDP,
    VIP4,
    Frontend,
    Pod,
    Refused,
    backends,
    be_the_node,
    node_port,
    put_service,
)

pytestmark = pytest.mark.root

PORT = 30080
Start = Callable[..., Maps]


@pytest.fixture
def own_pins(root: Path) -> Iterator[Pins]:
    """Programs of this test alone."""
    own = root.with_name(f"{root.name}-options")
    ensure_bpffs(own)
    yield Pins(own)
    links.detach(Pins(own).links)
    remove(own)


@pytest.fixture
def start(own_pins: Pins, cgroup: Path) -> Iterator[Start]:
    """The hooks in force, built with these options."""
    opened: list[Maps] = []

    def start(**options: bool) -> Maps:
        build = describe(own_pins, SMALL, **options)
        links.attach(own_pins, loader.ensure_loaded(own_pins, build).programs, cgroup)
        opened.append(Maps.open(own_pins))
        return opened[-1]

    yield start
    for maps in opened:
        maps.close()
    links.detach(own_pins.links)


def refusal(pod: Pod, kind: str, address: str, port: int = PORT) -> int | str | None:
    try:
        pod.ask("serve", kind, address, port)
    except Refused as refused:
        return refused.errno
    return None


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_in_the_scope_of_the_host_sockets_of_pods_are_left_alone(
    start: Start, pods: Callable[[], Pod], kind: str
) -> None:
    maps = start(node_sockets_only=True)
    put_service(maps, 7, [Frontend(VIP4)], backends(BACKENDS4), protocols=[UDP if kind == "udp" else 6])
    pod, node = pods(), pods()
    be_the_node(maps, node)
    for each in (pod, node):
        each.serve(BACKENDS4)
    with pytest.raises(Refused) as refused:
        pod.ask("request", kind, VIP4, 80)
    assert refused.value.errno == errno.ENETUNREACH
    assert maps.stats.read()[Reason.POD_SOCKET] == 1
    assert node.ask("request", kind, VIP4, 80)[1:] == [VIP4, 80]


@pytest.mark.usefixtures("set_retval")
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_held_node_port_is_refused_to_the_node_on_every_address_where_it_is_open(
    start: Start, pods: Callable[[], Pod], kind: str
) -> None:
    maps = start(holds_node_ports=True)
    protocol = UDP if kind == "udp" else 6
    put_service(maps, 7, [node_port(PORT)], backends(BACKENDS4), protocols=[protocol])
    put_service(maps, 8, [node_port(PORT + 1, "::")], (), protocols=[protocol])
    node, pod = pods(), pods()
    be_the_node(maps, node)
    for address, flag in ((NODE4, LocalFlag.NODE_PORT), (NODE6, LocalFlag.NODE_PORT), (BACKENDS4[0], LocalFlag(0))):
        maps.local_addr.update({LocalAddrKey(packed(Address(address))): LocalAddrValue(flag)})
    for address, port in (("0.0.0.0", PORT), (NODE4, PORT), ("::", PORT), ("::", PORT + 1), (NODE6, PORT + 1)):
        assert refusal(node, kind, address, port) == errno.EADDRINUSE
    assert maps.stats.read()[Reason.PORT_HELD] == 5
    for address, port in (("0.0.0.0", PORT + 2), (NODE6, PORT), (BACKENDS4[0], PORT), ("0.0.0.0", PORT + 1)):
        assert refusal(node, kind, address, port) is None
    assert refusal(pod, kind, "0.0.0.0") is None


def test_a_port_of_the_other_protocol_is_not_held(start: Start, pods: Callable[[], Pod]) -> None:
    maps = start(holds_node_ports=True)
    put_service(maps, 7, [node_port(PORT)], backends(BACKENDS4))
    node = pods()
    be_the_node(maps, node)
    assert refusal(node, "udp", "0.0.0.0") is None


@pytest.mark.usefixtures("set_retval")
def test_node_ports_are_held_no_more_when_nobody_asks_for_it(
    start: Start, own_pins: Pins, cgroup: Path, pods: Callable[[], Pod]
) -> None:
    maps = start(holds_node_ports=True)
    assert {hook.name for hook in NODE_PORT_HOOKS} <= links.attached(own_pins, cgroup).keys()
    put_service(maps, 7, [node_port(PORT)], backends(BACKENDS4))
    node = pods()
    be_the_node(maps, node)
    assert refusal(node, "tcp", "0.0.0.0") == errno.EADDRINUSE
    start()
    assert not {hook.name for hook in NODE_PORT_HOOKS} & links.attached(own_pins, cgroup).keys()
    assert refusal(node, "tcp", "0.0.0.0") is None


OPTIONS = ("has_set_retval", "node_sockets_only", "holds_node_ports")
PROGRAMS = {"packets": PACKET_PROGRAMS, "every device": (*PACKET_PROGRAMS, *OTHER_PACKET_PROGRAMS)}
# On other kernels two of them do, which have every option: the programs that all tests share are without.
ON_EVERY_KERNEL = {(True, True, True), (False, True, True)}
COMBINATIONS = [
    pytest.param(values, marks=[pytest.mark.kernels("ebpf")] if values in ON_EVERY_KERNEL else [])
    for values in product([True, False], repeat=len(OPTIONS))
]


@pytest.mark.parametrize("values", COMBINATIONS)
def test_the_kernel_takes_every_combination(own_pins: Pins, values: tuple[bool, ...]) -> None:
    options = dict(zip(OPTIONS, values, strict=True))
    if options["has_set_retval"] and not has_set_retval():
        pytest.skip("this kernel has no bpf_set_retval")
    expect_loaded(own_pins, describe(own_pins, SMALL, **options))


@pytest.mark.parametrize("clock", ["coarse", "exact"])
@pytest.mark.parametrize("programs", PROGRAMS)
def test_the_kernel_takes_packet_programs_of_every_kind(own_pins: Pins, programs: str, clock: str) -> None:
    """They know no other option."""
    if clock == "coarse" and not has_coarse_clock():
        pytest.skip("this kernel tells programs only the exact time")
    is_coarse = clock == "coarse"
    expect_loaded(own_pins, describe(own_pins, SMALL, packet_programs=PROGRAMS[programs], has_coarse_clock=is_coarse))


def expect_loaded(pins: Pins, build: source.Build) -> None:
    loaded = loader.ensure_loaded(pins, build)
    assert {path.name for path in loaded.programs.iterdir()} == {program.name for program in build.programs}
