"""The Service with two pods on which kbpf shows that it serves, out of the image and out of the Debian package."""

from functools import partial
from pathlib import Path

from kbpf.demo.proxy import Proxy
from tests.builders import endpoint_slice, port, service
from tests.kernel.world import World, backends, eventually
from tests.manifests import write_manifests

BACKENDS = ("10.42.1.10:8080", "10.42.1.11:8080")


def write_served(folder: Path) -> Path:
    """Its manifests, with a node port."""
    return write_manifests(
        folder / "manifests",
        service("web", port(80, node_port=30080), cluster_ip="10.96.0.10"),
        endpoint_slice("web", "10.42.1.10", "10.42.1.11"),
    )


def expect_served(world: World, proxy: Proxy) -> None:
    """From everywhere, and from a pod still when kbpf has ended."""
    world.serve(*BACKENDS)
    for origin, destination in (
        ("pod 10.42.1.100", "10.96.0.10:80"),
        ("host", "10.96.0.10:80"),
        ("outside", f"{world.node.addresses[0]}:30080"),
    ):
        # The first client from elsewhere may come before the rules that it needs.
        eventually(partial(_answered, world, origin, destination))
        assert backends(world.send(origin, destination, count=40)) == set(BACKENDS), origin
    assert proxy.terminate() == 0
    assert backends(world.send("pod 10.42.1.100", "10.96.0.10:80", count=40)) == set(BACKENDS)


def _answered(world: World, origin: str, destination: str) -> bool:
    return world.send(origin, destination)[0].error is None
