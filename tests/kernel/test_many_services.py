"""10,000 Services are there while one changes: nobody notices but who should."""

from pathlib import Path

import pytest

from tests.kernel.many_services import BEFORE, many, one, play, serve
from tests.kernel.world import World
from tests.manifests import write_manifests

pytestmark = pytest.mark.root

NUMBER = 10_000


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_one_of_ten_thousand_services_changes(world: World, tmp_path: Path, datapath: str) -> None:
    manifests = write_manifests(tmp_path / "manifests", *many(NUMBER), name="many.json")
    write_manifests(manifests, *one(BEFORE))
    serve(world)
    world.proxy(manifests, f"--datapath={datapath}", "--fallback=none", "--iptables-min-sync-period=100ms")
    play(world, NUMBER, lambda objects: write_manifests(manifests, *objects), timeout_s=20)
