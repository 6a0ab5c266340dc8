"""Attachments: beside others, replaced under load, made anew for a new cgroup, gone after detach."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import libbpf, links, loader, source
from kbpf.datapath.ebpf.hooks import HOOKS
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.neighbours import neighbours
from kbpf.datapath.ebpf.pins import Pins
from kbpf.errors import LoadFailed
from tests.kernel.ebpf.builds import describe
from tests.kernel.ebpf.conftest import Node
from tests.kernel.ebpf.world import BACKENDS4, UDP, VIP4, Frontend, Pod, backends, put_service

pytestmark = pytest.mark.root

ALL = tuple(hook.name for hook in HOOKS)
CONNECT4 = HOOKS[0].attach_type
REPOSITORY = Path(__file__).parents[3]
ATTACH_AND_DIE = """
import os, sys
from pathlib import Path
from kbpf.datapath.ebpf import links
from kbpf.datapath.ebpf.pins import Pins
root, programs, cgroup = map(Path, sys.argv[1:])
links.attach(Pins(root), programs, cgroup)
os.kill(os.getpid(), 9)
"""


def programs_on(cgroup: Path) -> tuple[int, ...]:
    with links.open_cgroup(cgroup) as fd:
        return libbpf.attached_program_ids(fd, CONNECT4)


@pytest.fixture
def detached(pins: Pins, programs: Path) -> Iterator[None]:
    yield
    links.detach(pins.links)


@pytest.fixture
def other_programs(pins: Pins, programs: Path) -> Iterator[Path]:
    """The same programs, loaded a second time: what an upgrade brings."""
    root = Pins(pins.root.with_name(pins.root.name + "-other"))
    loaded = loader.ensure_loaded(root, describe(root, {}))
    yield loaded.programs
    shutil.rmtree(root.root)


def test_attaching_again_changes_nothing(pins: Pins, programs: Path, cgroup: Path, detached: None) -> None:
    assert not links.attached(pins, cgroup)
    assert links.attach(pins, programs, cgroup).created == ALL
    assert links.attach(pins, programs, cgroup).kept == ALL
    assert links.attached(pins, cgroup) == links.program_ids(programs)


def test_other_programs_replace_the_old_ones_in_place(
    pins: Pins, programs: Path, other_programs: Path, cgroup: Path, detached: None
) -> None:
    links.attach(pins, programs, cgroup)
    before = programs_on(cgroup)
    assert links.attach(pins, other_programs, cgroup).updated == ALL
    assert len(programs_on(cgroup)) == 1
    assert programs_on(cgroup) != before


def test_a_half_attached_set_is_completed(pins: Pins, programs: Path, cgroup: Path, detached: None) -> None:
    links.attach(pins, programs, cgroup)
    for name in ALL[:4]:
        with links.closing(libbpf.obj_get(pins.link(name))) as fd:
            libbpf.link_detach(fd)
        pins.link(name).unlink()
    assert tuple(links.attached(pins, cgroup)) == ALL[4:]
    done = links.attach(pins, programs, cgroup)
    assert (done.created, done.kept) == (ALL[:4], ALL[4:])


def test_a_new_cgroup_of_the_same_path_gets_links_of_its_own(
    pins: Pins, programs: Path, cgroup: Path, detached: None
) -> None:
    inner = cgroup / "inner"
    inner.mkdir()
    links.attach(pins, programs, inner)
    inner.rmdir()
    inner.mkdir()
    try:
        assert not links.attached(pins, inner)
        assert links.attach(pins, programs, inner).created == ALL
        assert len(programs_on(inner)) == 1
        links.detach(pins.links)
        assert not programs_on(inner)
    finally:
        inner.rmdir()


def test_a_missing_cgroup_is_named(pins: Pins, programs: Path, cgroup: Path, detached: None) -> None:
    with pytest.raises(LoadFailed, match="/missing: No such file or directory"):
        links.attach(pins, programs, cgroup / "missing")


def test_programs_of_others_stay_and_run(
    maps: Maps, pins: Pins, programs: Path, other_programs: Path, cgroup: Path, pods: Callable[[], Pod], detached: None
) -> None:
    """`other_programs` has maps of its own and knows no service: a stranger that lets everything pass."""
    strangers = links.attach_unpinned(other_programs, cgroup)
    foreign = programs_on(cgroup)
    links.attach(pins, programs, cgroup)
    assert set(programs_on(cgroup)) > set(foreign)
    put_service(maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]))
    pod = pods()
    pod.serve(BACKENDS4[:1])
    assert pod.ask("request", "tcp", VIP4, 80) == [f"{BACKENDS4[0]}:8080", VIP4, 80]
    links.detach(pins.links)
    assert programs_on(cgroup) == foreign
    links.detach_unpinned(strangers)


def test_replacing_programs_under_load_loses_no_connect(node: Node, build: source.Build) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4), protocols=[UDP])
    copy = node.pins.folder / "copy"
    reloaded = copied(node, build, copy)
    pod = node.pod()
    pod.start("connects", VIP4, 80, 100_000)
    updates = 0
    try:
        while pod.is_busy():
            assert links.attach(node.pins, (reloaded, copy)[updates % 2], node.cgroup).updated == ALL
            updates += 1
        assert pod.finish() == {VIP4: 100_000}
        assert updates > 20
    finally:
        links.attach(node.pins, node.programs, node.cgroup)
        shutil.rmtree(copy)


def copied(node: Node, build: source.Build, folder: Path) -> Path:
    """Keep the loaded programs in `folder` too, then load them anew; where the new ones are."""
    folder.mkdir()
    for name in ALL:
        with links.closing(libbpf.obj_get(node.programs / name)) as fd:
            libbpf.obj_pin(fd, folder / name)
    shutil.rmtree(node.programs)
    return loader.ensure_loaded(node.pins, build).programs


def test_the_hooks_outlive_the_process_that_attached_them(
    maps: Maps, pins: Pins, programs: Path, cgroup: Path, pods: Callable[[], Pod], detached: None
) -> None:
    command = [sys.executable, "-c", ATTACH_AND_DIE, pins.root, programs, cgroup]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == -signal.SIGKILL
    put_service(maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]))
    pod = pods()
    pod.serve(BACKENDS4[:1])
    assert pod.ask("requests", "tcp", VIP4, 80, 10) == {f"{BACKENDS4[0]}:8080": 10}


def test_detaching_breaks_no_established_connection(node: Node) -> None:
    put_service(node.maps, 7, [Frontend(VIP4)], backends(BACKENDS4[:1]))
    pod = node.pod()
    pod.serve(BACKENDS4[:1])
    number = pod.ask("open_socket", "tcp", "AF_INET")
    pod.ask("connect", number, VIP4, 80)
    links.detach(node.pins.links)
    assert pod.ask("receive", number)[0].split()[0] == f"{BACKENDS4[0]}:8080"


def test_programs_of_others_on_the_same_hooks_are_named(
    pins: Pins, programs: Path, cgroup: Path, detached: None, other_programs: Path
) -> None:
    links.attach(pins, programs, cgroup)
    own = frozenset(links.program_ids(programs).values())
    assert neighbours(cgroup, own) == {}
    others = links.attach_unpinned(other_programs, cgroup)
    found = neighbours(cgroup, own)
    links.detach_unpinned(others)
    assert set(found) == set(ALL)
    assert found["connect4"] == ("connect4",)
