"""Loaded once for each test process; attached to a cgroup of its own, with empty maps, for each test."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import libbpf, links, loader, source
from kbpf.datapath.ebpf.factory import netns_cookie
from kbpf.datapath.ebpf.filesystem import ensure_bpffs, find_cgroup2
from kbpf.datapath.ebpf.hooks import HOOKS, OTHER_PACKET_PROGRAMS, PACKET_PROGRAMS
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.probe import has_set_retval
from tests.kernel.ebpf.builds import describe
from tests.kernel.ebpf.world import Pod, empty

NAME = f"kbpf-test-{os.getpid()}"


@pytest.fixture(scope="session")
def root() -> Iterator[Path]:
    root = Path("/sys/fs/bpf") / NAME
    ensure_bpffs(root)
    yield root
    remove(root)


@pytest.fixture(scope="session")
def set_retval() -> None:
    """For tests that see a refusal: before Linux 5.18 iptables answers for what has no backends."""
    if not has_set_retval():
        pytest.skip("this kernel has no bpf_set_retval")


@pytest.fixture(scope="session")
def told_namespace_cookie() -> None:
    """For tests that compare it: before Linux 5.14 every namespace is searched instead."""
    if not netns_cookie():
        pytest.skip("this kernel tells no socket the cookie of its namespace")


@pytest.fixture(scope="session")
def pins(root: Path) -> Pins:
    return Pins(root)


@pytest.fixture(scope="session")
def build(pins: Pins) -> source.Build:
    packet_programs = (*PACKET_PROGRAMS, *OTHER_PACKET_PROGRAMS)
    return describe(pins, {}, packet_programs=packet_programs)


@pytest.fixture(scope="session")
def programs(pins: Pins, build: source.Build) -> Path:
    return loader.ensure_loaded(pins, build).programs


@pytest.fixture
def cgroup() -> Iterator[Path]:
    root = find_cgroup2()
    assert root, "these tests need a cgroup2 mount"
    path = root / NAME
    path.mkdir()
    yield path
    with links.open_cgroup(path) as fd:
        left = [hook.name for hook in HOOKS if libbpf.attached_program_ids(fd, hook.attach_type)]
    path.rmdir()
    assert not left, f"programs left on the test's cgroup: {left}"


@pytest.fixture
def maps(pins: Pins, programs: Path) -> Iterator[Maps]:
    opened = Maps.open(pins)
    yield opened
    empty(opened)
    opened.close()


@dataclass
class Node:
    """The datapath in force on a cgroup, and the means to start pods below it."""

    maps: Maps
    pins: Pins
    programs: Path
    cgroup: Path
    pod: Callable[[], Pod]


@pytest.fixture
def pods(cgroup: Path) -> Iterator[Callable[[], Pod]]:
    started: list[Pod] = []

    def start() -> Pod:
        started.append(Pod(cgroup))
        return started[-1]

    yield start
    for pod in started:
        pod.close()


@pytest.fixture
def node(maps: Maps, pins: Pins, programs: Path, cgroup: Path, pods: Callable[[], Pod]) -> Iterator[Node]:
    links.attach(pins, programs, cgroup)
    yield Node(maps, pins, programs, cgroup, pods)
    links.detach(pins.links)
    assert not list(pins.links.iterdir())
