"""One Service changes among many: what is there, what is asked in packets, and what must come of it.

Played by kbpf on both datapaths (`test_many_services`) and by the real kube-proxy (in `tests/parity`). All the many
lead to one pod; the one among them moves from one pod to another while connections to all of them are open.
"""

from collections.abc import Callable, Sequence

from kbpf.model.objects import EndpointSlice, Service
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.world import World, backends, eventually

Objects = list[Service | EndpointSlice]
Change = Callable[[Objects], object]

CALLER = "pod 10.42.1.100"
SHARED, BEFORE, AFTER = "10.42.1.10", "10.42.1.11", "10.42.2.12"
WEB, DNS = "10.96.0.10:80", "10.96.0.10:53/udp"
ASKED = 20


def many(number: int) -> Objects:
    return [thing for index in range(number) for thing in _one_of_many(index)]


def one(pod: str) -> Objects:
    """The Service that changes, with its only endpoint."""
    ports = [slice_port(8080, "http"), slice_port(5353, "dns", "UDP")]
    return [
        service("one", port(80, "http"), port(53, "dns", "UDP")),
        endpoint_slice("one", pod, ports=ports),
    ]


def serve(world: World) -> None:
    world.serve(f"{SHARED}:8080", *(name for pod in (BEFORE, AFTER) for name in (f"{pod}:8080", f"{pod}:5353/udp")))


def play(world: World, number: int, change: Change, timeout_s: float) -> None:
    """`change` says what the one Service is from now on; its rules may take `timeout_s`."""
    of_many = [f"{_address(index)}:80" for index in range(0, number, number // ASKED)]

    def lead_to(pod: str) -> bool:
        answers = [world.send(CALLER, to, count=5, timeout_s=1) for to in (WEB, DNS)]
        return [backends(each) for each in answers] == [{f"{pod}:8080"}, {f"{pod}:5353"}]

    eventually(lambda: lead_to(BEFORE), timeout_s)
    open_ones = [world.sessions(CALLER, to) for to in (WEB, of_many[0], of_many[-1])]
    for pod in (AFTER, BEFORE, AFTER):
        change(one(pod))
        eventually(lambda pod=pod: lead_to(pod), timeout_s)  # type: ignore[misc]
        for to in of_many:
            assert backends(world.send(CALLER, to)) == {f"{SHARED}:8080"}, to
        assert [_who(each.ping()) for each in open_ones] == [f"{BEFORE}:8080", f"{SHARED}:8080", f"{SHARED}:8080"]


def _who(answers: Sequence[object]) -> object:
    [answer] = answers
    return getattr(answer, "backend", None)


def _one_of_many(index: int) -> Objects:
    name = f"many-{index}"
    return [service(name, cluster_ips=[_address(index)]), endpoint_slice(name, SHARED)]


def _address(index: int) -> str:
    return f"10.96.{100 + index // 250}.{index % 250 + 1}"
