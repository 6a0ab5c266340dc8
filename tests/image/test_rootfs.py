"""kbpf out of the image's root file system, with the mounts and rights that the manifests of `deploy/` give it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbpf.demo.proxy import Proxy
from tests.image.served import expect_served, write_served
from tests.kernel.world import CLUSTER_RANGES, World, standing_world

pytestmark = [pytest.mark.root, pytest.mark.image]

REPOSITORY = Path(__file__).parents[2]
ROOTFS = REPOSITORY / "build/rootfs"
CONTAIN = Path(__file__).with_name("contain.sh")
OVERLAYS = REPOSITORY / "deploy/kubernetes/overlays"


class ContainedProxy(Proxy):
    """`rights` as `contain.sh` takes them. The folder of manifests is the container's /tmp/config."""

    def __init__(self, world: World, manifests: Path, log: Path, rights: str, *options: str) -> None:
        super().__init__(world.node, Path("/tmp/config"), log, "--cluster-cidr", CLUSTER_RANGES, *options)
        self._contain = [str(CONTAIN), str(ROOTFS), rights, str(manifests), "/usr/local/bin/kbpf"]

    def _command(self, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
        roots = ["--cgroup-root", str(self.node.cgroup), "--bpffs-root", str(self.node.bpffs)]
        enter = ["nsenter", f"--net={self.node.namespace.path}", "unshare", "--mount"]
        return [*enter, *self._contain, *arguments, *roots, *options]


def rights_of(overlay: str) -> str:
    """The capabilities that an overlay's container keeps."""
    patches: list[dict[str, Any]] = yaml.safe_load((OVERLAYS / overlay / "kustomization.yaml").read_text())["patches"]
    operations = [operation for patch in patches for operation in yaml.safe_load(patch["patch"])]
    (context,) = [one["value"] for one in operations if one["path"].endswith("/securityContext")]
    assert context["capabilities"]["drop"] == ["ALL"]
    return ",".join(context["capabilities"]["add"])


@pytest.fixture(
    params=[
        ("ebpf", "all"),
        ("iptables", "all"),
        ("ebpf", rights_of("restricted")),
        ("iptables", rights_of("iptables")),
    ],
    ids=["ebpf-base", "iptables-base", "ebpf-restricted", "iptables-overlay"],
)
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[World, ContainedProxy]]:
    """A world whose node runs the image, with a Service on two pods and a node port."""
    datapath, rights = request.param
    manifests = write_served(tmp_path)
    with standing_world(tmp_path) as world:
        options = (f"--datapath={datapath}", "--fallback=none", "--conntrack-max-per-core=0", "--oom-score-adj=0")
        proxy = ContainedProxy(world, manifests, tmp_path / "kbpf.log", rights, *options)
        proxy.start()
        try:
            proxy.wait_until_healthy(60)
            yield world, proxy
        finally:
            proxy.terminate()
            proxy.cleanup()


def test_the_image_serves_and_leaves_what_it_programmed(contained: tuple[World, ContainedProxy]) -> None:
    expect_served(*contained)
