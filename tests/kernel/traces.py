"""What a proxy left on a node, asked from the kernel and not from kbpf: chains, pins, attached programs."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kbpf.demo.namespaces import Namespace
from kbpf.demo.node import Node

TABLES = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
CHAIN_PREFIXES = (":KUBE-", ":KBPF-")
# connect4/6, sendmsg4/6, recvmsg4/6, getpeername4/6, sock_release: numbers of enum bpf_attach_type.
ATTACH_TYPES = (10, 11, 14, 15, 19, 20, 29, 30, 34)
# TCX ingress and egress.
DEVICE_ATTACH_TYPES = (46, 47)


def traces(node: Node) -> list[str]:
    """One line each; empty on a node where no proxy ran, and after `kbpf cleanup`."""
    pins = [f"pin {path}" for path in node.bpffs.rglob("*")]
    return [*_chains(node), *pins, *attached_to_cgroup(node.cgroup), *attached_to_uplink(node.namespace)]


def _chains(node: Node) -> list[str]:
    found = []
    for tool in TABLES:
        rules = subprocess.run(["nsenter", f"--net={node.namespace.path}", tool], capture_output=True, text=True)
        found += [f"{tool}: {line}" for line in rules.stdout.splitlines() if line.startswith(CHAIN_PREFIXES)]
    return found


def attached_to_cgroup(cgroup: Path) -> list[str]:
    descriptor = os.open(cgroup, os.O_RDONLY)
    try:
        return _programs(descriptor, ATTACH_TYPES)
    finally:
        os.close(descriptor)


def attached_to_uplink(namespace: Namespace) -> list[str]:
    with namespace.entered():
        links = _programs(socket.if_nametoindex("eth0"), DEVICE_ATTACH_TYPES)
    return [*links, *_filters(namespace, "eth0")]


def _filters(namespace: Namespace, device: str) -> list[str]:
    found = []
    for side in ("ingress", "egress"):
        command = ["tc", "-netns", namespace.name, "filter", "show", "dev", device, side]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found += [f"{side} of {device}: {line}" for line in shown.splitlines() if "kbpf" in line]
    return found


def _programs(target: int, attach_types: Iterable[int]) -> list[str]:
    libbpf, found = ctypes.CDLL("libbpf.so.1"), []
    for attach_type in attach_types:
        count = ctypes.c_uint32(0)
        libbpf.bpf_prog_query(target, attach_type, 0, None, None, ctypes.byref(count))
        if count.value:
            found.append(f"{count.value} programs attached with type {attach_type}")
    return found
