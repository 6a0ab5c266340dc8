"""SCTP Services are left to rules on both datapaths; for kernels that have SCTP sockets, as Debian's do."""

import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbpf.demo.patience import patient
from tests.builders import endpoint_slice, port, service, slice_port
from tests.kernel.world import World
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CALLER, PODS, VIP = "10.42.1.100", ("10.42.1.10", "10.42.2.10"), "10.96.0.10"
SERVER = """
import socket, sys

listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
listening.bind((sys.argv[1], 2906))
listening.listen(128)
print("listening", flush=True)
while True:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(sys.argv[1].encode())
"""
CLIENT = """
import socket, sys

for _ in range(20):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as client:
        client.settimeout(float(sys.argv[2]))
        client.connect((sys.argv[1], 2905))
        print(client.recv(100).decode())
"""


@pytest.fixture
def servers(world: World) -> Iterator[None]:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError as error:
        if error.errno != errno.EPROTONOSUPPORT:
            raise
        pytest.skip("this kernel has no SCTP sockets")
    with ExitStack() as running:
        for pod in PODS:
            server = running.enter_context(subprocess.Popen(inside(world, pod, SERVER, pod), stdout=subprocess.PIPE))
            running.callback(server.kill)
            assert server.stdout
            assert server.stdout.readline() == b"listening\n"
        yield


@pytest.mark.parametrize(
    "datapath", [pytest.param(each, marks=pytest.mark.kernels(each)) for each in ("iptables", "ebpf")]
)
def test_a_call_reaches_every_backend(world: World, tmp_path: Path, servers: None, datapath: str) -> None:
    media = service("media", port(2905, protocol="SCTP"))
    slices = endpoint_slice("media", *PODS, ports=[slice_port(2906, protocol="SCTP")])
    world.proxy(write_manifests(tmp_path / "manifests", media, slices), f"--datapath={datapath}", "--fallback=none")
    client = inside(world, CALLER, CLIENT, VIP, str(patient(3)))
    answers = subprocess.run(client, capture_output=True, text=True, check=True).stdout.split()
    assert len(answers) == 20
    assert set(answers) == set(PODS)


def inside(world: World, pod: str, script: str, *arguments: str) -> list[str]:
    path = world.pod(pod).namespace.path
    return ["nsenter", f"--net={path}", sys.executable, "-I", "-c", script, *arguments]
