"""Network namespaces: created, furnished with links, addresses and routes, entered, and deleted by name.

Pods, nodes and the network around them are made of them (cable.py, node.py), and child processes move into them
(place.py). Furnishing goes through `ip -batch`, one process for many lines: a node with its pods stands in a fraction
of a second.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kbpf.errors import CommandFailed
from kbpf.host.namespaces import OWN, enter, enter_open

DIRECTORY = Path("/run/netns")


class Namespace(msgspec.Struct, frozen=True):
    """A network namespace with a name, as `ip netns` lists it."""

    name: str

    @property
    def path(self) -> str:
        return str(DIRECTORY / self.name)

    def create(self, sysctls: Mapping[str, int] | None = None) -> None:
        """Make it, with loopback up. Sysctls are set before any device comes, so devices inherit the defaults."""
        ip_batch(f"netns add {self.name}")
        with self.entered():
            for name, value in {**_SYSCTLS, **(sysctls or {})}.items():
                Path("/proc/sys", *name.split(".")).write_text(str(value))
        self.ip("link set lo up")

    def delete(self) -> None:
        ip_batch(f"netns del {self.name}")

    def ip(self, *lines: str) -> None:
        """Run lines of `ip` inside, for example `addr add 10.0.0.1/24 dev eth0`."""
        ip_batch(*lines, namespace=self.name)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread's network is the namespace's for a while; sockets made meanwhile stay in it."""
        home = os.open(OWN, os.O_RDONLY)
        try:
            enter(Path(self.path))
            yield
        finally:
            enter_open(home, "home")
            os.close(home)


_SYSCTLS = {
    # Duplicate address detection would hold every new IPv6 address back for a second.
    "net.ipv6.conf.all.accept_dad": 0,
    "net.ipv6.conf.default.accept_dad": 0,
    # A fast stream of connections would be out of source ports within half a minute.
    "net.ipv4.tcp_tw_reuse": 1,
}


def ip_batch(*lines: str, namespace: str | None = None) -> None:
    inside = ["-netns", namespace] if namespace else []
    done = subprocess.run(
        ["ip", *inside, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CommandFailed(" ".join(["ip", *inside, *lines[:1]]), done.returncode, done.stderr)
