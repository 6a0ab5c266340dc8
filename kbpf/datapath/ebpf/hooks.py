"""The cgroup hooks of `bpf/sock.c`: program names there, and the kernel's numbers for them.

`loader` loads one program for each, `links` attaches it, `probe` asks the kernel for it.
"""

from typing import NamedTuple

PROGRAM_CGROUP_SOCK = 9
PROGRAM_CGROUP_SOCK_ADDR = 18


class Hook(NamedTuple):
    """The name is the C function, the pin of its program and the pin of its link."""

    name: str
    program_type: int
    attach_type: int


HOOKS: tuple[Hook, ...] = (
    Hook("connect4", PROGRAM_CGROUP_SOCK_ADDR, 10),
    Hook("connect6", PROGRAM_CGROUP_SOCK_ADDR, 11),
    Hook("sendmsg4", PROGRAM_CGROUP_SOCK_ADDR, 14),
    Hook("sendmsg6", PROGRAM_CGROUP_SOCK_ADDR, 15),
    Hook("recvmsg4", PROGRAM_CGROUP_SOCK_ADDR, 19),
    Hook("recvmsg6", PROGRAM_CGROUP_SOCK_ADDR, 20),
    Hook("getpeername4", PROGRAM_CGROUP_SOCK_ADDR, 29),
    Hook("getpeername6", PROGRAM_CGROUP_SOCK_ADDR, 30),
    Hook("sock_release", PROGRAM_CGROUP_SOCK, 34),
)
