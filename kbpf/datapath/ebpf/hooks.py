"""The programs of `bpf/sock.c` and `bpf/tc.c`: their names there, and the kernel's numbers for them.

`loader` loads each, `links` attaches the cgroup hooks, `uplinks` and `filters` the packet programs, `probe` asks the
kernel for them.
"""

from typing import NamedTuple

PROGRAM_SCHED_CLS = 3
PROGRAM_CGROUP_SOCK = 9
PROGRAM_CGROUP_SOCK_ADDR = 18


class Hook(NamedTuple):
    """The name is the C function and the pin of its program; of a cgroup hook also the pin of its link."""

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

NODE_PORT_HOOKS: tuple[Hook, ...] = (
    Hook("post_bind4", PROGRAM_CGROUP_SOCK, 12),
    Hook("post_bind6", PROGRAM_CGROUP_SOCK, 13),
)
"""These keep sockets of the node off its node ports, and are built only where that is asked for."""

# What TCX links say; a program for either device end loads without.
TCX_INGRESS, TCX_EGRESS = 46, 47
PACKET_PROGRAMS = ("tc_ingress", "tc_egress")
OTHER_PACKET_PROGRAMS = (
    "tc_ingress_raw",
    "tc_egress_raw",
    "tc_ingress_bridge",
    "tc_ingress_pods",
    "tc_ingress_pods_raw",
    "tc_ingress_pods_bridge",
)
"""For devices of other kinds: without an Ethernet header, bridges, those by which only pods send. They are built only
where there is such a device."""
