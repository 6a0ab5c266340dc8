"""The small world of these tests: pods on loopback addresses of their own network namespaces, maps filled by hand."""

import errno
import json
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kbpf.datapath.ebpf import shapes
from kbpf.datapath.ebpf.ids import backend_address
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.shapes import DeferReason, FrontendFlag, Kind, Verdict, View
from kbpf.demo.patience import patient
from kbpf.model.address import Address, packed

TCP, UDP = 6, 17
AGENT = Path(__file__).with_name("agent.py")

VIP4, VIP6 = "10.96.0.10", "fd96::10"
COOKIE_VIP = "10.96.0.99"
BACKENDS4 = ("10.244.0.1", "10.244.0.2", "10.244.0.3")
BACKENDS6 = ("fd44::1", "fd44::2", "fd44::3")
NODE4, NODE6 = "192.168.50.1", "fd50::1"
ADDRESSES = (*(f"{a}/32" for a in (*BACKENDS4, NODE4)), *(f"{a}/128" for a in (*BACKENDS6, NODE6)))


class Pod:
    """Sockets below `cgroup`, in a network namespace that has every backend's address and no route elsewhere."""

    def __init__(self, cgroup: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(AGENT), str(patient(2))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say({"cgroup": str(cgroup), "addresses": ADDRESSES})

    def _say(self, message: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the agent died at {message}"
        return dict(json.loads(answer))

    def ask(self, command: str, *arguments: Any) -> Any:
        """The result; a failed call raises Refused."""
        answer = self._say([command, *arguments])
        if "errno" in answer:
            raise Refused(answer["errno"])
        return answer["result"]

    def start(self, command: str, *arguments: Any) -> None:
        """Begin a command whose answer `finish` waits for."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._process.stdin.flush()

    def is_busy(self) -> bool:
        assert self._process.stdout
        waiting = select.poll()
        waiting.register(self._process.stdout, select.POLLIN)
        return not waiting.poll(0)

    def finish(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())["result"]

    def serve(self, addresses: Iterable[str], port: int = 8080) -> None:
        for address in addresses:
            self.ask("serve", "tcp", address, port)
            self.ask("serve", "udp", address, port)

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=patient(10))
        self._process.stdout.close()


class Refused(Exception):
    """A socket call failed in the pod, with this errno or "timeout"."""

    def __init__(self, errno: int | str) -> None:
        super().__init__(errno)
        self.errno = errno


class Frontend(NamedTuple):
    address: str
    port: int = 80
    kind: Kind = Kind.CLUSTER_IP
    view: View = View.CLUSTER
    verdict: Verdict = Verdict.REJECT
    defer: DeferReason = DeferReason.NONE
    external_view: View = View.CLUSTER
    external_verdict: Verdict = Verdict.REJECT
    flags: FrontendFlag = FrontendFlag(0)


def node_port(port: int, address: str = "0.0.0.0", **fields: Any) -> Frontend:
    return Frontend(address, port, Kind.NODE_PORT, **fields)


class Backend(NamedTuple):
    id: int
    address: str
    port: int = 8080


def be_the_node(maps: Maps, pod: Pod) -> None:
    """Its network namespace is the node's from now on."""
    cookie = namespace_cookie(maps, pod)
    maps.config.update({shapes.IndexKey(0): shapes.ConfigValue(cookie, 0, 0)})


def namespace_cookie(maps: Maps, pod: Pod) -> int:
    """Of the pod. Before Linux 5.14 no socket tells it, and the row of one that connects to a service must."""
    try:
        return int(pod.ask("netns_cookie"))
    except Refused as refused:
        if refused.errno != errno.ENOPROTOOPT:
            raise
    put_service(maps, 999, [Frontend(COOKIE_VIP)], backends(BACKENDS4[:1], 999), protocols=[UDP])
    number = pod.ask("open_socket", "udp", "AF_INET")
    pod.ask("connect", number, COOKIE_VIP, 80)
    socket_cookie = pod.ask("cookie", number)
    (cookie,) = (key.netns_cookie for key in maps.udp_conn.entries() if key.socket_cookie == socket_cookie)
    pod.ask("close", number)
    return cookie


def backends(addresses: Iterable[str], first_id: int = 1) -> tuple[Backend, ...]:
    return tuple(Backend(number, address) for number, address in enumerate(addresses, start=first_id))


def put_service(
    maps: Maps,
    service_id: int,
    frontends: Iterable[Frontend],
    cluster: tuple[Backend, ...],
    *,
    local: tuple[Backend, ...] = (),
    protocols: Iterable[int] = (TCP,),
    generation: int = 1,
    affinity_timeout_s: int = 0,
) -> None:
    """Write one service, in the order that keeps readers right."""
    (protocol,) = protocols
    put_generation(maps, service_id, cluster, local, protocol, generation, affinity_timeout_s)
    for frontend in frontends:
        key = shapes.FrontendKey(packed(Address(frontend.address)), frontend.port, protocol)
        flags = frontend.flags | (FrontendFlag.DEFER_SOCKETS if frontend.defer else 0)
        views = (frontend.view, frontend.verdict, frontend.external_view, frontend.external_verdict)
        maps.frontends.update(
            {key: shapes.FrontendValue(*key, frontend.kind, service_id, flags, frontend.defer, *views)}
        )


def put_generation(
    maps: Maps,
    service_id: int,
    cluster: tuple[Backend, ...],
    local: tuple[Backend, ...] = (),
    protocol: int = TCP,
    generation: int = 1,
    affinity_timeout_s: int = 0,
) -> None:
    views = ((View.CLUSTER, cluster), (View.LOCAL, local))
    for backend in (*cluster, *local):
        value = shapes.BackendValue(packed(Address(backend.address)), backend.port, protocol, backend.id)
        maps.backends.update({shapes.BackendKey(backend.id): value})
    for view, members in views:
        for position, backend in enumerate(members):
            key = shapes.MembershipKey(service_id, backend.id, view)
            known = maps.membership.lookup(key)
            first = known.first_generation if known and known.last_generation == generation - 1 else generation
            maps.membership.update({key: shapes.MembershipValue(first, generation, service_id, backend.id)})
            slot = shapes.SlotKey(service_id, generation, view, position)
            address = backend_address(packed(Address(backend.address)), backend.port, protocol)
            maps.slots.update({slot: shapes.SlotValue(service_id, generation, backend.id, address)})
    value = shapes.ServiceValue(generation, len(cluster), len(local), service_id, affinity_timeout_s)
    maps.services.update({shapes.ServiceKey(service_id): value})


def sweep_generation(maps: Maps, service_id: int, generation: int) -> None:
    maps.slots.delete(
        [key for key in maps.slots.entries() if (key.service_id, key.generation) == (service_id, generation)]
    )


def empty(maps: Maps) -> None:
    for each in (
        maps.frontends,
        maps.services,
        maps.slots,
        maps.membership,
        maps.backends,
        maps.affinity,
        maps.udp_conn,
        maps.local_addr,
        maps.flows,
        maps.fragments,
        maps.source_ranges,
        maps.wanted,
    ):
        each.delete(list(each.entries()))
    maps.config.update({shapes.IndexKey(0): shapes.ConfigValue(0, 0, 0)})
