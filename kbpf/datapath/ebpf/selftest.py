"""The proof before traffic: a client in a scratch cgroup connects to a probe address through the real programs.

It finds what no probe can: a cgroup hierarchy that sockets do not belong to, programs that run but do not translate.
The backend calls it after the maps are complete and before `links.attach`. It needs nothing but a loopback device and
leaves no entry, cgroup or link behind.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbpf.datapath.ebpf import links
from kbpf.datapath.ebpf.child import ask
from kbpf.datapath.ebpf.filesystem import scratch_cgroup
from kbpf.datapath.ebpf.ids import backend_address
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import (
    FIRST_RESERVED_ID,
    BackendKey,
    BackendValue,
    FrontendKey,
    FrontendValue,
    Kind,
    MembershipKey,
    MembershipValue,
    ServiceKey,
    ServiceValue,
    SlotKey,
    SlotValue,
    Verdict,
    View,
)
from kbpf.datapath.interface import Answer, Feature
from kbpf.errors import DatapathError
from kbpf.model.address import Address, packed

NAME = "self-test"
TIMEOUT_S = 20.0
# No Service can have a loopback address, and untranslated it is refused at once instead of timing out.
PROBE_ADDRESS, PROBE_PORT = Address("127.255.107.98"), 1
_LOOPBACK = Address("127.0.0.1")
_CHILD = Path(__file__).with_name("selftest_child.py")
_PROTOCOLS = ((6, FIRST_RESERVED_ID), (17, FIRST_RESERVED_ID + 1))


def run(maps: Maps, pins: Pins, programs: Path, cgroup_root: Path) -> Feature:
    """Do sockets below `cgroup_root` get translated by `programs`, and back?"""
    in_force = links.attached(pins, cgroup_root)
    is_current = in_force == links.program_ids(programs)
    try:
        with scratch_cgroup(cgroup_root, "selftest") as cgroup, _listeners() as (tcp, udp), _entries(maps, tcp, udp):
            scratch_links = [] if is_current else links.attach_unpinned(programs, cgroup)
            try:
                # Older programs of ours above would see the backend's address and take the records for untrue.
                return _ask(cgroup, tcp, udp, sees_probe=is_current or not in_force)
            finally:
                links.detach_unpinned(scratch_links)
    except OSError as error:
        return Feature(NAME, Answer.UNKNOWN, f"the test could not be made: {error.strerror or error}")


def _ask(cgroup: Path, tcp: socket.socket, udp: socket.socket, *, sees_probe: bool) -> Feature:
    question = {
        "cgroup": str(cgroup),
        "tcp": tcp.fileno(),
        "udp": udp.fileno(),
        "address": PROBE_ADDRESS,
        "port": PROBE_PORT,
        "sees_probe": sees_probe,
    }
    try:
        reply = ask(sys.executable, _CHILD, question, TIMEOUT_S, keep_open=(tcp.fileno(), udp.fileno()))
    except DatapathError as error:
        return Feature(NAME, Answer.UNKNOWN, str(error))
    if "problem" in reply.answer:
        return Feature(NAME, Answer.NO, str(reply.answer["problem"]))
    if "unclear" in reply.answer:
        return Feature(NAME, Answer.UNKNOWN, str(reply.answer["unclear"]))
    return Feature(NAME, Answer.YES)


@contextmanager
def _listeners() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket(type=socket.SOCK_STREAM) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind((_LOOPBACK, 0))
        tcp.listen()
        udp.bind((_LOOPBACK, 0))
        yield tcp, udp


@contextmanager
def _entries(maps: Maps, tcp: socket.socket, udp: socket.socket) -> Iterator[None]:
    """The probe address leads to the two listeners, within this block."""
    try:
        for (protocol, number), listener in zip(_PROTOCOLS, (tcp, udp), strict=True):
            _write(maps, protocol, number, listener.getsockname()[1])
        yield
    finally:
        maps.frontends.delete(_frontend(protocol) for protocol, _ in _PROTOCOLS)
        maps.services.delete(ServiceKey(number) for _, number in _PROTOCOLS)
        maps.slots.delete(SlotKey(number, 1, View.CLUSTER, 0) for _, number in _PROTOCOLS)
        maps.membership.delete(MembershipKey(number, number, View.CLUSTER) for _, number in _PROTOCOLS)
        maps.backends.delete(BackendKey(number) for _, number in _PROTOCOLS)


def _frontend(protocol: int) -> FrontendKey:
    return FrontendKey(packed(PROBE_ADDRESS), PROBE_PORT, protocol)


def _write(maps: Maps, protocol: int, number: int, port: int) -> None:
    """One service with one backend, both of the same reserved id."""
    key = _frontend(protocol)
    # Not a ClusterIP: on an address of this node, such as all of 127.0.0.0/8, the hooks leave those alone.
    kind, views = Kind.EXTERNAL_IP, (View.CLUSTER, Verdict.REJECT, View.CLUSTER, Verdict.REJECT)
    maps.backends.update({BackendKey(number): BackendValue(packed(_LOOPBACK), port, protocol, number)})
    maps.membership.update({MembershipKey(number, number, View.CLUSTER): MembershipValue(1, 1, number, number)})
    slot = SlotValue(number, 1, number, backend_address(packed(_LOOPBACK), port, protocol))
    maps.slots.update({SlotKey(number, 1, View.CLUSTER, 0): slot})
    maps.services.update({ServiceKey(number): ServiceValue(1, 1, 0, number, 0)})
    maps.frontends.update({key: FrontendValue(*key, kind, number, 0, 0, *views)})
