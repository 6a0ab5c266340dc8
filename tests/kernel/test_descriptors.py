"""A daemon that runs for months, or asks the kernel what it can do, holds as many descriptors as when it started."""

from pathlib import Path

import pytest

from kbpf.datapath.ebpf import probe
from kbpf.datapath.ebpf.uplinks import Way
from kbpf.demo.proxy import Proxy
from kbpf.host.clsact import ClsactFilters
from tests.builders import endpoint_slice, port, service
from tests.kernel.world import World, eventually
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

CHANGES = 6


def descriptors(proxy: Proxy) -> int:
    return len(list(Path(f"/proc/{proxy.pid}/fd").iterdir()))


def test_full_syncs_leave_no_descriptor_open(world: World, tmp_path: Path) -> None:
    """An address that comes to the node causes one."""
    objects = service("web", port(80, node_port=30080), type="NodePort"), endpoint_slice("web", "10.42.1.10")
    proxy = world.proxy(write_manifests(tmp_path / "manifests", *objects), "--datapath=ebpf", "--fallback=none")
    before = descriptors(proxy)
    for number in range(CHANGES):
        syncs = len(proxy.syncs())
        world.node.namespace.ip(f"address add 192.168.99.{number + 1}/32 dev lo")
        eventually(lambda syncs=syncs: len(proxy.syncs()) > syncs)
    eventually(lambda: descriptors(proxy) <= before)


def test_questions_to_the_kernel_leave_no_descriptor_open(world: World) -> None:
    def ask() -> int:
        with world.node.namespace.entered():
            support = probe.probe(world.node.cgroup, world.node.bpffs)
            probe.packet_path(ClsactFilters(), tuple(Way))
        assert support.features
        return len(list(Path("/proc/self/fd").iterdir()))

    assert ask() == ask()
