"""The self-test's client: joins the scratch cgroup, then connects to the probe address and says what it saw.

`selftest` starts it with one JSON question on its standard input. Sockets belong to the cgroup they were made in, so
this must be a process that joins first. Standard library only. The answer: {} when all is well, {"problem": …} when
the programs did not do what they must, {"unclear": …} when the test itself could not be made.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

TIMEOUT_S = 2.0
Address = tuple[str, int]


class Problem(Exception):
    pass


class Server:
    """The backend: two listening sockets that the parent opened."""

    def __init__(self, tcp: int, udp: int) -> None:
        self.tcp, self.udp = socket.socket(fileno=tcp), socket.socket(fileno=udp)
        self.tcp.settimeout(TIMEOUT_S)
        self.udp.settimeout(TIMEOUT_S)


def client(family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(family, kind)
    made.settimeout(TIMEOUT_S)
    return made


def check_tcp(server: Server, family: socket.AddressFamily, probe: Address, sees_probe: bool) -> None:
    with client(family, socket.SOCK_STREAM) as made:
        made.connect(probe)
        connection, _ = server.tcp.accept()
        connection.close()
        peer = made.getpeername()[:2]
    if sees_probe and peer != probe:
        raise Problem(f"a connection to {probe[0]} shows its peer as {peer[0]}")


def check_udp(server: Server, probe: Address, sees_probe: bool) -> None:
    with client(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"kbpf", probe)
        data, sender = server.udp.recvfrom(16)
        server.udp.sendto(data, sender)
        _, answered = made.recvfrom(16)
    if sees_probe and answered != probe:
        raise Problem(f"a datagram to {probe[0]} is answered by {answered[0]}")


def checked(server: Server, question: dict[str, Any]) -> None:
    probe, sees_probe = (question["address"], question["port"]), question["sees_probe"]
    check_tcp(server, socket.AF_INET, probe, sees_probe)
    check_udp(server, probe, sees_probe)
    if socket.has_dualstack_ipv6():
        check_tcp(server, socket.AF_INET6, (f"::ffff:{probe[0]}", probe[1]), sees_probe)


def answer(question: dict[str, Any]) -> dict[str, str]:
    server = Server(question["tcp"], question["udp"])
    try:
        Path(question["cgroup"], "cgroup.procs").write_text(str(os.getpid()))
        with client(socket.AF_INET, socket.SOCK_STREAM) as direct:
            direct.connect(server.tcp.getsockname())
            server.tcp.accept()[0].close()
    except OSError as error:
        return {"unclear": f"no connection without the programs either: {error.strerror or error}"}
    try:
        checked(server, question)
    except Problem as problem:
        return {"problem": str(problem)}
    except OSError as error:
        return {"problem": f"the probe address was not translated: {error.strerror or error}"}
    return {}


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
