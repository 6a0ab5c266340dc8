"""Kernel settings that kube-proxy makes at its start: size and time-outs of connection tracking, and route_localnet.

`plan` compares wishes with observed values and is pure; `ConntrackTuning` observes, plans and writes. server.py runs
it; whoever makes the iptables datapath asks here for `is_liberal` and `allow_localnet`.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from kbpf.config import ConntrackSettings
from kbpf.errors import HostError

log = logging.getLogger(__name__)

LARGEST_CONNTRACK_MAX = 1 << 20
"""What is computed from the number of cores never asks for more, whatever the machine (kube-proxy 1.36)."""
ENTRIES_PER_BUCKET = 4
DEFAULT = ConntrackSettings()


class Sysctl(Enum):
    """One number in /proc/sys or /sys. Those of connection tracking appear when it is loaded."""

    CONNTRACK_MAX = "/proc/sys/net/netfilter/nf_conntrack_max"
    CONNTRACK_BUCKETS = "/sys/module/nf_conntrack/parameters/hashsize"
    TCP_TIMEOUT_ESTABLISHED = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"
    TCP_TIMEOUT_CLOSE_WAIT = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
    TCP_BE_LIBERAL = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
    UDP_TIMEOUT = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
    UDP_TIMEOUT_STREAM = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream"
    ROUTE_LOCALNET = "/proc/sys/net/ipv4/conf/all/route_localnet"
    BRIDGE_CALLS_IPTABLES = "/proc/sys/net/bridge/bridge-nf-call-iptables"

    def __str__(self) -> str:
        return Path(self.value).name


class Sysctls(Protocol):
    def read(self, sysctl: Sysctl) -> int | None:
        """None where there is no such value, or none for us to see."""
        ...

    def write(self, sysctl: Sysctl, value: int) -> None:
        """Raises HostError when the kernel refuses."""
        ...


class KernelSysctls:
    """Those of the caller's network namespace; size and buckets of the table are the whole machine's."""

    def read(self, sysctl: Sysctl) -> int | None:
        try:
            return int(Path(sysctl.value).read_text())
        except OSError:
            return None

    def write(self, sysctl: Sysctl, value: int) -> None:
        try:
            # Never creates: below a read-only or missing /proc that would hide the failure.
            with Path(sysctl.value).open("r+") as file:
                file.write(str(value))
        except OSError as error:
            raise HostError(f"cannot set {sysctl.value} to {value}: {error.strerror or error}") from error


class Write(NamedTuple):
    sysctl: Sysctl
    value: int
    is_asked_for: bool
    """By the operator. What is merely a default may fail."""


class ConntrackTuning:
    """Makes the kernel's connection tracking what the options say, once, as soon as it is loaded.

    It is never loaded for this: without any rule of iptables a node does well without. The first rules may load it,
    hence `run` is called at the start and after each sync.
    """

    def __init__(self, wanted: ConntrackSettings, sysctls: Sysctls, cores: int | None = None) -> None:
        self._wanted = wanted
        self._sysctls = sysctls
        self._cores = cores or os.cpu_count() or 1
        self._is_done = False
        self.refused = ""
        """Defaults that could not be written, and why."""

    def run(self) -> None:
        """Raises HostError when a value that was asked for cannot be written.

        A default that cannot be (a container with a read-only /proc, a network namespace that does not own the table's
        size) is one line in the log.
        """
        if self._is_done or self._sysctls.read(Sysctl.CONNTRACK_MAX) is None:
            return
        self._is_done = True
        observed = {sysctl: value for sysctl in Sysctl if (value := self._sysctls.read(sysctl)) is not None}
        done, refused = [], []
        for sysctl, value, is_asked_for in plan(self._wanted, self._cores, observed):
            try:
                self._sysctls.write(sysctl, value)
                done.append(f"{sysctl} from {observed[sysctl]} to {value}")
            except HostError as error:
                if is_asked_for:
                    raise
                refused.append(str(error))
        if done:
            log.info(f"set {', '.join(done)}")
        if refused:
            self.refused = "; ".join(refused)
            log.warning(f"left as the system has it: {self.refused}")


def is_liberal(wanted: ConntrackSettings, sysctls: Sysctls) -> bool:
    """Does, or will, connection tracking let TCP packets outside of the window pass?"""
    return wanted.tcp_be_liberal or bool(sysctls.read(Sysctl.TCP_BE_LIBERAL))


def plan(wanted: ConntrackSettings, cores: int, observed: Mapping[Sysctl, int]) -> tuple[Write, ...]:
    """What must be written: what is there and differs. Zero means leave alone."""
    timeouts = (
        (Sysctl.TCP_TIMEOUT_ESTABLISHED, wanted.tcp_timeout_established_s, DEFAULT.tcp_timeout_established_s),
        (Sysctl.TCP_TIMEOUT_CLOSE_WAIT, wanted.tcp_timeout_close_wait_s, DEFAULT.tcp_timeout_close_wait_s),
        (Sysctl.TCP_BE_LIBERAL, int(wanted.tcp_be_liberal), int(DEFAULT.tcp_be_liberal)),
        (Sysctl.UDP_TIMEOUT, wanted.udp_timeout_s, DEFAULT.udp_timeout_s),
        (Sysctl.UDP_TIMEOUT_STREAM, wanted.udp_timeout_stream_s, DEFAULT.udp_timeout_stream_s),
    )
    return (
        *_size_writes(wanted, cores, observed),
        *(
            Write(sysctl, value, value != default)
            for sysctl, value, default in timeouts
            if value > 0 and observed.get(sysctl, value) != value
        ),
    )


def _size_writes(wanted: ConntrackSettings, cores: int, observed: Mapping[Sysctl, int]) -> Iterator[Write]:
    """The table is only ever made larger: somebody who chose more had a reason."""
    if not wanted.max_per_core:
        return
    size = min(max(wanted.max_per_core * cores, wanted.min), LARGEST_CONNTRACK_MAX)
    is_asked_for = (wanted.max_per_core, wanted.min) != (DEFAULT.max_per_core, DEFAULT.min)
    if observed.get(Sysctl.CONNTRACK_MAX, size) < size:
        yield Write(Sysctl.CONNTRACK_MAX, size, is_asked_for)
    buckets = size // ENTRIES_PER_BUCKET
    if observed.get(Sysctl.CONNTRACK_BUCKETS, buckets) < buckets:
        # Only the initial network namespace may; kube-proxy goes on without, too.
        yield Write(Sysctl.CONNTRACK_BUCKETS, buckets, False)


def allow_localnet(sysctls: Sysctls) -> bool:
    """Let packets for 127.0.0.1 leave the host's loopback, as localhost node ports need.

    False, after one line in the log, where that is not possible: then there can be no localhost node ports.
    """
    if sysctls.read(Sysctl.ROUTE_LOCALNET) == 1:
        return True
    try:
        sysctls.write(Sysctl.ROUTE_LOCALNET, 1)
    except HostError as error:
        log.warning(f"no node ports on 127.0.0.1: {error}")
        return False
    log.info("set route_localnet to 1, so that node ports work on 127.0.0.1")
    return True
