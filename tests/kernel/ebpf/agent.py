"""A pod, or the node: a process in a cgroup and a network namespace that does with sockets what it is told.

Started by `world.Pod` with one JSON line {"cgroup": …, "addresses": […]}; then one command and one answer a line. A
failed call answers {"errno": n}. Servers say who was asked and who asked: "ADDRESS:PORT PEER". Standard library only.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
SO_COOKIE, SO_NETNS_COOKIE = 57, 71
PATIENCE_S = float(sys.argv[1])
KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}

sockets = {}


def enter(cgroup, addresses):
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    # An IPv6 address is tentative at first, on lo too: nobody can bind to it then.
    commands = [f"address add {address} dev lo {'nodad' if ':' in address else ''}" for address in addresses]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(["link set lo up", *commands]), text=True, check=True)
    for address in addresses:
        await_route(address.partition("/")[0])
    # Last, so that no hook sees the above.
    Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))


def await_route(address):
    """The kernel adds the route to a new IPv6 address some time later; a refusal has been there and back."""
    deadline = time.monotonic() + 5 * PATIENCE_S
    while True:
        with socket.socket(family_of(address)) as client:
            client.settimeout(0.2)
            try:
                client.connect((address, 9))
            except ConnectionRefusedError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.002)


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(kind, address, port):
    server = socket.socket(family_of(address), KINDS[kind])
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    name = f"{address}:{port}"
    if kind == "tcp":
        server.listen(128)
        loop = answer_connections
    else:
        loop = answer_datagrams
    threading.Thread(target=loop, args=(server, name), daemon=True).start()


def answer_connections(server, name):
    while True:
        connection, peer = server.accept()
        with connection:
            connection.sendall(f"{name} {peer[0]}".encode())


def answer_datagrams(server, name):
    while True:
        _, peer = server.recvfrom(2048)
        server.sendto(f"{name} {peer[0]}".encode(), peer)


def open_socket(kind, family):
    opened = socket.socket(getattr(socket, family), KINDS[kind])
    opened.settimeout(PATIENCE_S)
    sockets[opened.fileno()] = opened
    return opened.fileno()


def connect(number, address, port):
    sockets[number].connect((address, port))


def disconnect(number):
    """connect(AF_UNSPEC): the socket has no peer any more, and no hook is called."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.connect(number, struct.pack("=H14x", socket.AF_UNSPEC), 16) != 0:
        raise OSError(ctypes.get_errno(), "connect")


def send(number, address=None, port=None):
    if address is None:
        sockets[number].send(b"?")
    else:
        sockets[number].sendto(b"?", (address, port))


def receive(number):
    data, sender = sockets[number].recvfrom(2048)
    return [data.decode(), *(sender[:2] if sender else (None, None))]


def peer(number):
    return list(sockets[number].getpeername()[:2])


def close(number):
    sockets.pop(number).close()


def cookie(number):
    return struct.unpack("=Q", sockets[number].getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))[0]


def netns_cookie():
    with socket.socket() as any_socket:
        return struct.unpack("=Q", any_socket.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))[0]


def request(kind, address, port):
    """A new socket, one question, one answer: [who answered, the sender or peer as the socket sees it]."""
    number = open_socket(kind, "AF_INET6" if ":" in address else "AF_INET")
    try:
        if kind == "tcp":
            connect(number, address, port)
            seen = peer(number)
            return [receive(number)[0].split()[0], *seen]
        send(number, address, port)
        words, *sender = receive(number)
        return [words.split()[0], *sender]
    finally:
        close(number)


def requests(kind, address, port, count):
    """How many of `count` requests each backend answered; failures by "errno N"."""
    shares = {}
    for _ in range(count):
        try:
            who = request(kind, address, port)[0]
        except OSError as error:
            who = f"errno {error.errno}"
        shares[who] = shares.get(who, 0) + 1
    return shares


def connects(address, port, count):
    """Outcomes of `count` UDP sockets that only connect: the peer each of them sees, or "errno N"."""
    outcomes = {}
    for _ in range(count):
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as client:
            try:
                client.connect((address, port))
                outcome = str(client.getpeername()[0])
            except OSError as error:
                outcome = f"errno {error.errno}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


COMMANDS = {
    function.__name__: function
    for function in (
        serve,
        open_socket,
        connect,
        disconnect,
        send,
        receive,
        peer,
        close,
        cookie,
        netns_cookie,
        request,
        requests,
        connects,
    )
}


def main():
    # The inherited copies would keep the parent's end of a pipe open for ever.
    fcntl.fcntl(0, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    start = json.loads(sys.stdin.readline())
    enter(start["cgroup"], start["addresses"])
    print(json.dumps({"result": "ready"}), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"result": COMMANDS[name](*arguments)}
        except TimeoutError:
            answer = {"errno": "timeout"}
        except OSError as error:
            answer = {"errno": error.errno}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
