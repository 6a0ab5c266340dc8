"""kbpf as the proxy of a kernel engine: a daemon on n1 that reads its objects from a manifest file.

How does a test know that a change is in force? By a Service of its own, the barrier, in the same file. It has two ports
and two slices, one for each; a flip adds one slice and deletes the other. The source delivers deleted slices last, so
a refused connection to the deleted side means that the sync which knows of everything has begun. A second flip goes
into the next sync, and syncs do not overlap: when that one shows, the first is over, clean-up of flows included.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import yaml

from kbpf.demo.patience import patient
from kbpf.demo.proxy import Proxy
from kbpf.model.address import Address
from tests.scenarios.harness.agent import Agent, Target
from tests.scenarios.harness.engine import Mismatch
from tests.scenarios.harness.format import (
    EndpointEntry,
    ServiceEntry,
    ServicePortEntry,
    SliceEntry,
    SlicePortEntry,
)
from tests.scenarios.harness.objects import ObjectKey, Tree, service_object, slice_object
from tests.scenarios.harness.world import World

PATIENCE_S = 10.0
FLAGS = ("--cluster-cidr=10.42.0.0/16,fd42::/16", "--iptables-min-sync-period=0s", "--fallback=none")


class Barrier:
    """Its namespace sorts behind all others, so that its deleted slice is the last event of a change."""

    namespace = "zzzz"
    address = Address("10.96.255.250")
    sides = ("a", "b")

    def __init__(self) -> None:
        self._open = "a"

    def flip(self) -> None:
        self._open = self._closed

    @property
    def _closed(self) -> str:
        return "b" if self._open == "a" else "a"

    def objects(self) -> list[Tree]:
        ports = [ServicePortEntry(name=side, port=_port(side)) for side in self.sides]
        service = ServiceEntry(ns=self.namespace, name="barrier", clusterIP=self.address, ports=ports)
        return [service_object(service), self.slice(self._open)]

    def slice(self, side: str) -> Tree:
        port = SlicePortEntry(name=side, port=_port(side))
        endpoint = EndpointEntry(ip="10.42.2.250", node="n2")
        return slice_object(
            SliceEntry(service=f"{self.namespace}/barrier", name=side, ports=[port], endpoints=[endpoint])
        )

    def is_in_force(self, agent: Agent) -> bool:
        target = Target(self.address, _port(self._closed), "TCP", "connect", None, timeout_s=0.5)
        return agent.flows([target], 1)[0][0].error == "ECONNREFUSED"


def _port(side: str) -> int:
    return 7001 + Barrier.sides.index(side)


class KbpfProxy:
    """Started by its constructor; `stop` ends it and runs `kbpf cleanup`."""

    def __init__(self, world: World, datapath: str, directory: Path, held: Callable[[], list[str]]) -> None:
        """`held` tells what the kernel holds, a line an entry, the same line for the same state."""
        self.name = f"{datapath}-kernel"
        self.translates_sockets = datapath == "ebpf"
        self._manifest = directory / "objects.yaml"
        self._agent = world.client()
        self._barrier = Barrier()
        self._held = held
        self._write({})
        self._daemon = Proxy(world.node, directory, directory.with_suffix(".log"), f"--datapath={datapath}", *FLAGS)
        self._daemon.start()
        self._daemon.wait_until_healthy()
        self._held_at_start = held()

    def apply(self, objects: dict[ObjectKey, Tree]) -> None:
        for _ in range(2):
            self._barrier.flip()
            self._write(objects)
            self._wait()

    def _write(self, objects: dict[ObjectKey, Tree]) -> None:
        """In one piece, as an editor or a ConfigMap does it."""
        new = self._manifest.with_suffix(".new")
        new.write_text(yaml.dump_all([*objects.values(), *self._barrier.objects()], Dumper=yaml.CSafeDumper))
        new.rename(self._manifest)

    def _wait(self) -> None:
        deadline = time.monotonic() + patient(PATIENCE_S)
        while not self._barrier.is_in_force(self._agent):
            if time.monotonic() > deadline:
                raise Mismatch(
                    f"not in force after {patient(PATIENCE_S):.0f} s; kbpf's last words: {self._daemon.last_words()}"
                )
            time.sleep(0.002)

    def leftovers(self) -> str:
        """Of the last sync as well, which may still be taking away the barrier's other side."""
        deadline = time.monotonic() + patient(PATIENCE_S)
        while left := list((Counter(self._held()) - Counter(self._held_at_start)).elements()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return "\n".join(left)

    def stop(self) -> None:
        self._daemon.terminate()
        self._daemon.cleanup()


def barrier_slices() -> list[Tree]:
    """For the world, which must let the barrier's endpoint answer."""
    return [Barrier().slice(side) for side in Barrier.sides]
