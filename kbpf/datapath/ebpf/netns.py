"""The number by which programs know a network namespace: the kernel's cookie of the one this process is in.

`server` reads it once and the backend writes it to the map "config": loopback node ports are open to that namespace
only. The kernel's first namespace would be the wrong one for a node that is itself a container.
"""

import socket
import struct

SO_NETNS_COOKIE = 71


def own_cookie() -> int:
    """0 on kernels that do not tell (before 5.14): programs then take the kernel's first namespace."""
    with socket.socket() as any_socket:
        try:
            raw = any_socket.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
        except OSError:
            return 0
    return int(struct.unpack("=Q", raw)[0])
