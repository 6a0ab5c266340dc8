"""Who is taken for a live kube-proxy, and who is not."""

import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from kbpf.config import ListenAddress
from kbpf.host import other_proxies
from kbpf.host.other_proxies import running_proxies
from kbpf.observe.http import HttpThread, Response

NETNS, OTHER_NETNS = "net:[4026531840]", "net:[4026532000]"


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """Answers one request with what the test says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def seen(peer: socket.socket, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(other_proxies, "_processes", lambda: iter(()))

    def serve() -> None:
        connection, _ = peer.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    found = running_proxies([peer.getsockname()])
    thread.join()
    return [sighting.evidence for sighting in found]


def http_answer(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, headers, len(body), body)


@pytest.mark.parametrize("mode", ["iptables", "ipvs", "nftables"])
def test_a_mode_on_the_metrics_address_is_a_kube_proxy(peer: socket.socket, mode: str, monkeypatch: pytest.MonkeyPatch):
    port = peer.getsockname()[1]
    assert seen(peer, http_answer(mode.encode()), monkeypatch) == [f"127.0.0.1:{port}/proxyMode answers {mode}"]


@pytest.mark.parametrize(
    "answer",
    [
        http_answer(b"ebpf"),
        http_answer(b"iptables", b"404 Not Found"),
        http_answer(b"iptables", headers=b"Server: kbpf/0.1.0\r\n"),
        http_answer(b"<html>" * 1000),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_other_programs_and_kbpf_itself_are_none(peer: socket.socket, answer: bytes, monkeypatch: pytest.MonkeyPatch):
    assert seen(peer, answer, monkeypatch) == []


def test_our_own_server_names_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(other_proxies, "_processes", lambda: iter(()))
    thread = HttpThread("test")
    listener = thread.listen(ListenAddress("127.0.0.1", 0), lambda path: Response(HTTPStatus.OK, b"iptables"))
    assert running_proxies([("127.0.0.1", listener.port)]) == []
    thread.stop()


def test_nobody_who_listens_is_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(other_proxies, "_processes", lambda: iter(()))
    assert running_proxies([("127.0.0.1", 1)]) == []


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    def process(number: str, comm: str, netns: str) -> None:
        (tmp_path / number / "ns").mkdir(parents=True)
        (tmp_path / number / "comm").write_text(f"{comm}\n")
        (tmp_path / number / "ns" / "net").symlink_to(netns)

    process("self", "kbpf", NETNS)
    process("10", "kube-proxy", NETNS)
    process("11", "kube-proxy", OTHER_NETNS)
    process("12", "bash", NETNS)
    (tmp_path / "13").mkdir()  # ended while we look
    (tmp_path / "sys").mkdir()
    return tmp_path


def test_a_process_of_that_name_counts_in_our_network_namespace_only(proc: Path):
    assert [sighting.evidence for sighting in other_proxies._processes(proc)] == ["process 10"]


def test_pins_of_other_load_balancers_are_named(tmp_path: Path):
    (tmp_path / "tc" / "globals").mkdir(parents=True)
    assert list(other_proxies._pins(tmp_path)) == []
    (tmp_path / "tc" / "globals" / "cilium_lb4_services_v2").touch()
    (tmp_path / "calico").mkdir()
    cilium, calico = other_proxies._pins(tmp_path)
    assert cilium.startswith(f"Cilium has BPF objects below {tmp_path}/tc/globals/cilium_lb4_services_v2")
    assert calico.startswith(f"Calico has BPF objects below {tmp_path}/calico")
