"""Ending the connected UDP sockets that the hooks list: exactly those, wherever they live, whatever they did since."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ECONNABORTED
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import factory
from kbpf.datapath.ebpf.connected import ConnectedSockets
from kbpf.host import namespaces
from kbpf.host.netlink import NetlinkSocket
from kbpf.host.udp_sockets import UdpSockets, why_sockets_cannot_be_ended
from kbpf.model.sockets import ConnectedSocket
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import BACKENDS4, BACKENDS6, UDP, VIP4, VIP6, Frontend, Pod, Refused, backends, put_service

pytestmark = pytest.mark.root


@pytest.fixture
def pod(node: Node) -> Pod:
    for number, vip, addresses in ((7, VIP4, BACKENDS4[:1]), (8, VIP6, BACKENDS6[:1])):
        put_service(node.maps, number, [Frontend(vip)], backends(addresses, number), protocols=[UDP])
    pod = node.pod()
    pod.serve((*BACKENDS4, *BACKENDS6))
    return pod


@pytest.fixture
def sockets(node: Node, root: Path) -> UdpSockets:
    return UdpSockets(ConnectedSockets(root), factory.netns_cookie)


def connected(pod: Pod, address: str, family: str = "AF_INET") -> int:
    number = int(pod.ask("open_socket", "udp", family))
    pod.ask("connect", number, address, 80)
    return number


def works(pod: Pod, number: int) -> bool:
    pod.ask("send", number)
    return bool(pod.ask("receive", number))


def listed(sockets: UdpSockets, pod: Pod, number: int) -> ConnectedSocket:
    [found] = [each for each in sockets.read() if each.cookie == pod.ask("cookie", number)]
    return found


@pytest.mark.parametrize(("vip", "family"), [(VIP4, "AF_INET"), (VIP6, "AF_INET6"), (f"::ffff:{VIP4}", "AF_INET6")])
def test_one_of_two_sockets_to_one_backend(pod: Pod, sockets: UdpSockets, vip: str, family: str) -> None:
    first, second = connected(pod, vip, family), connected(pod, vip, family)
    assert sockets.end([listed(sockets, pod, first)]) == 1
    with pytest.raises(Refused) as refused:
        pod.ask("receive", first)
    assert refused.value.errno == ECONNABORTED
    assert works(pod, second)
    assert list(sockets.read()) == [listed(sockets, pod, second)]
    pod.ask("connect", first, vip, 80)
    assert works(pod, first)


def test_sockets_of_two_pods_at_once(node: Node, pod: Pod, sockets: UdpSockets) -> None:
    other = node.pod()
    for each in (pod, other):
        connected(each, VIP4)
    assert sockets.end(sockets.read()) == 2
    assert not list(sockets.read())


def test_a_socket_that_has_no_peer_any_more(pod: Pod, sockets: UdpSockets) -> None:
    number = connected(pod, VIP4)
    pod.ask("disconnect", number)
    assert sockets.end(sockets.read()) == 0
    pod.ask("send", number, VIP4, 80)
    assert pod.ask("receive", number)


def test_a_socket_that_has_connected_elsewhere_since_it_was_listed(node: Node, pod: Pod, sockets: UdpSockets) -> None:
    put_service(node.maps, 9, [Frontend("10.96.0.11")], backends(BACKENDS4[1:2], 9), protocols=[UDP])
    number = connected(pod, VIP4)
    before = list(sockets.read())
    pod.ask("connect", number, "10.96.0.11", 80)
    assert sockets.end(before) == 0
    assert works(pod, number)
    assert listed(sockets, pod, number).reply_source == bytes(map(int, BACKENDS4[1].split(".")))


def test_a_socket_that_has_been_closed_since_it_was_listed(pod: Pod, sockets: UdpSockets) -> None:
    number = connected(pod, VIP4)
    before = list(sockets.read())
    pod.ask("close", number)
    assert sockets.end(before) == 0


def test_a_pod_that_has_ended_since_its_sockets_were_listed(node: Node, pod: Pod, sockets: UdpSockets) -> None:
    other = node.pod()
    connected(other, VIP4)
    before = list(sockets.read())
    other.close()
    assert sockets.end(before) == 0
    assert not list(sockets.read())


@pytest.mark.usefixtures("told_namespace_cookie")
def test_only_the_namespaces_of_its_sockets_are_entered_and_the_caller_stays_in_its_own(
    node: Node, pod: Pod, sockets: UdpSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(pod, VIP4)
    home = namespaces.OWN.stat().st_ino
    asked: list[int] = []

    @contextmanager
    def counted(*arguments: int) -> Iterator[object]:
        asked.append(factory.netns_cookie())
        with NetlinkSocket(*arguments) as opened:
            yield opened

    monkeypatch.setattr("kbpf.host.udp_sockets.NetlinkSocket", counted)
    assert sockets.end(sockets.read()) == 1
    assert asked == [pod.ask("netns_cookie")]
    assert namespaces.OWN.stat().st_ino == home


def test_a_name_that_stands_for_no_namespace_hinders_nobody(
    pod: Pod, sockets: UdpSockets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left-behind").touch()
    monkeypatch.setattr(namespaces, "FOLDERS", (tmp_path,))
    connected(pod, VIP4)
    assert sockets.end(sockets.read()) == 1


@pytest.mark.parametrize("lack", ["sys_admin", "net_admin"])
def test_without_a_right_that_it_takes_the_reason_is_told(lack: str) -> None:
    code = "from kbpf.host.udp_sockets import why_sockets_cannot_be_ended as why; print(why())"
    command = ["setpriv", f"--bounding-set=-{lack}", sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told == "Operation not permitted\n"
    assert why_sockets_cannot_be_ended() == ""


def test_without_knowing_the_namespace_a_socket_is_found_by_its_cookie(node: Node, pod: Pod, root: Path) -> None:
    """As on kernels before 5.14."""
    sockets = UdpSockets(ConnectedSockets(root), lambda: 0)
    connected(pod, VIP4)
    assert sockets.end(sockets.read()) == 1
    assert not list(sockets.read())
