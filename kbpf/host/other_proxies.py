"""Who else balances Services on this node: a kube-proxy that runs, and what others left behind.

Looked for once, at the start, by `ownership`. A kube-proxy is known by what it answers on its metrics address, which
also finds those inside of k3s and the like, and by its process, which also finds one with other addresses. Its chains
prove nothing: they stay when it is gone.
"""

import contextlib
import http.client
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kbpf.host.netlink import NetlinkSocket, Payload, attributes

TIMEOUT_S = 1.0
KUBE_PROXY = "kube-proxy"
KUBE_PROXY_MODES = ("iptables", "ipvs", "nftables")
OWN_SERVER = "kbpf/"
IPVS_DEVICE = "kube-ipvs0"
NETLINK_NETFILTER = 12
GET_TABLE = 10 << 8 | 1
TABLE_NAME = 1
GENERIC_HEADER = struct.pack("=BBH", socket.AF_UNSPEC, 0, 0)
BPFFS = Path("/sys/fs/bpf")
PINS = {"Cilium": ("cilium", "tc/globals/cilium_*"), "Calico": ("calico", "tc/globals/cali_*")}


class Sighting(NamedTuple):
    """A service proxy that runs, and how it was seen."""

    name: str
    evidence: str


def running_proxies(metrics_addresses: Iterable[tuple[str, int]]) -> list[Sighting]:
    """Live ones of other programs in this network namespace."""
    answers = (_answer(host, port) for host, port in dict.fromkeys(metrics_addresses))
    return [*filter(None, answers), *_processes()]


def leftovers(bpffs: Path = BPFFS) -> list[str]:
    """What others left, or still use, that kbpf does not touch: one line each."""
    return [*_tables(), *_devices(), *_pins(bpffs)]


def _answer(host: str, port: int) -> Sighting | None:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/proxyMode")
            response = connection.getresponse()
            mode = response.read(64).decode("ascii", "replace").strip()
        except (OSError, http.client.HTTPException):
            return None
    is_own = (response.headers["Server"] or "").startswith(OWN_SERVER)
    if is_own or response.status != http.client.OK or mode not in KUBE_PROXY_MODES:
        return None
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Sighting(KUBE_PROXY, f"{where}/proxyMode answers {mode}")


def _processes(proc: Path = Path("/proc")) -> Iterator[Sighting]:
    try:
        own = (proc / "self/ns/net").readlink()
    except OSError:
        return
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        # Whatever ends while we look, or is hidden from us, is none.
        with contextlib.suppress(OSError):
            is_kube_proxy = (entry / "comm").read_text().strip() == KUBE_PROXY
            if is_kube_proxy and (entry / "ns/net").readlink() == own and int(entry.name) != os.getpid():
                yield Sighting(KUBE_PROXY, f"process {entry.name}")


def _tables() -> Iterator[str]:
    """A kube-proxy of mode nftables has tables of its own, which stay in force without it."""
    try:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            names = [_table_name(payload) for payload in netlink.dump(GET_TABLE, GENERIC_HEADER)]
    except OSError:
        return
    if KUBE_PROXY in names:
        yield "the nftables table kube-proxy balances as well: `kube-proxy --cleanup` removes it"


def _table_name(payload: Payload) -> str:
    buffer, start, end = payload
    found = {kind: buffer[first:last] for kind, first, last in attributes(buffer, start + len(GENERIC_HEADER), end)}
    return found.get(TABLE_NAME, b"").rstrip(b"\0").decode(errors="replace")


def _devices() -> Iterator[str]:
    with contextlib.suppress(OSError):
        socket.if_nametoindex(IPVS_DEVICE)
        yield f"the device {IPVS_DEVICE} holds service addresses: `kube-proxy --cleanup` removes it"


def _pins(bpffs: Path) -> Iterator[str]:
    for name, patterns in PINS.items():
        found = next((path for pattern in patterns for path in _glob(bpffs, pattern)), None)
        if found:
            yield f"{name} has BPF objects below {found}: only one of the two should balance Services"


def _glob(bpffs: Path, pattern: str) -> list[Path]:
    try:
        return sorted(bpffs.glob(pattern))
    except OSError:
        return []
