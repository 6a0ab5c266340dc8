"""The self-test through the real programs: what it proves, what it notices, and that it leaves nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import loader, selftest, source
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.probe import probe
from kbpf.datapath.ebpf.shapes import LocalAddrKey, LocalAddrValue, LocalFlag
from kbpf.datapath.interface import Answer
from kbpf.model.address import Address, packed
from tests.kernel.ebpf.builds import describe
from tests.kernel.ebpf.conftest import Node

pytestmark = pytest.mark.root
on_other_kernels = pytest.mark.kernels("ebpf")

REPOSITORY = Path(__file__).parents[3]
RUN = """
import sys
from pathlib import Path
from kbpf.datapath.ebpf import selftest
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins
from tests.kernel.ebpf.builds import describe
root, programs, cgroup = map(Path, sys.argv[1:])
result = selftest.run(Maps.open(Pins(root)), Pins(root), programs, cgroup)
print(result.answer.value, result.reason)
"""


@pytest.fixture
def strange_programs(pins: Pins) -> Iterator[Path]:
    """Programs over maps of their own: they load and attach, and do not know the probe address."""
    other = Pins(pins.root.with_name(f"{pins.root.name}-strange"))
    yield loader.ensure_loaded(other, describe(other, {})).programs
    shutil.rmtree(other.root)


def is_empty(maps: Maps, cgroup: Path) -> bool:
    tables = (maps.frontends, maps.services, maps.slots, maps.membership, maps.backends, maps.affinity, maps.udp_conn)
    return not any(table.entries() for table in tables) and not [path for path in cgroup.iterdir() if path.is_dir()]


@on_other_kernels
def test_it_passes_before_the_hooks_are_attached(maps: Maps, pins: Pins, programs: Path, cgroup: Path) -> None:
    result = selftest.run(maps, pins, programs, cgroup)
    assert (result.answer, result.reason) == (Answer.YES, "")
    assert is_empty(maps, cgroup)


@on_other_kernels
def test_it_passes_where_the_loopback_addresses_are_known_as_local(
    maps: Maps, pins: Pins, programs: Path, cgroup: Path
) -> None:
    maps.local_addr.update({LocalAddrKey(packed(Address("127.0.0.1"))): LocalAddrValue(LocalFlag.LOOPBACK)})
    result = selftest.run(maps, pins, programs, cgroup)
    assert (result.answer, result.reason) == (Answer.YES, "")


@on_other_kernels
def test_it_passes_through_the_hooks_in_force(node: Node) -> None:
    result = selftest.run(node.maps, node.pins, node.programs, node.cgroup)
    assert (result.answer, result.reason) == (Answer.YES, "")
    assert is_empty(node.maps, node.cgroup)


def test_it_passes_for_new_programs_beside_the_old_ones_in_force(node: Node, build: source.Build) -> None:
    shutil.rmtree(node.programs)
    reloaded = loader.ensure_loaded(node.pins, build).programs
    result = selftest.run(node.maps, node.pins, reloaded, node.cgroup)
    assert (result.answer, result.reason) == (Answer.YES, "")


@on_other_kernels
def test_it_notices_programs_that_do_not_translate(
    maps: Maps, pins: Pins, strange_programs: Path, cgroup: Path
) -> None:
    result = selftest.run(maps, pins, strange_programs, cgroup)
    assert result.answer is Answer.NO
    assert result.reason == "the probe address was not translated: Connection refused"
    assert is_empty(maps, cgroup)


@pytest.mark.parametrize(
    ("set_up", "expected"),
    [
        ("ip link set lo up", "yes"),
        ("true", "cannot tell no connection without the programs either: Network is unreachable"),
    ],
)
def test_it_needs_a_loopback_device_only(
    maps: Maps, pins: Pins, programs: Path, cgroup: Path, set_up: str, expected: str
) -> None:
    script = f'{set_up}; exec "$@"'
    inner = [sys.executable, "-c", RUN, str(pins.root), str(programs), str(cgroup)]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", *inner],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected
    assert is_empty(maps, cgroup)


def test_a_cgroup_that_takes_no_children_gives_no_answer(maps: Maps, pins: Pins, programs: Path, cgroup: Path) -> None:
    (cgroup / "cgroup.max.descendants").write_text("0")
    result = selftest.run(maps, pins, programs, cgroup)
    assert result.answer is Answer.UNKNOWN
    (cgroup / "cgroup.max.descendants").write_text("max")


@on_other_kernels
def test_the_probe_says_yes_here_and_leaves_nothing(cgroup: Path, root: Path) -> None:
    support = probe(cgroup, root)
    assert (support.answer, support.reason) == (Answer.YES, "")
    assert not [path for path in cgroup.iterdir() if path.is_dir()]


@on_other_kernels
def test_without_capabilities_the_probe_names_them(cgroup: Path, root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kbpf.datapath.ebpf.probe import probe;"
        "support = probe(*map(Path, sys.argv[1:])); print(support.answer.value, support.reason)"
    )
    command = ["setpriv", "--bounding-set", "-bpf,-sys_admin", sys.executable, "-c", code, str(cgroup), str(root)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "no capabilities: missing CAP_BPF"
