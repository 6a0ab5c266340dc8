"""Maps and programs are made in a thread of their own, and a failure there is left to the first sync."""

import threading
from collections.abc import Callable

import pytest

from kbpf.errors import LoadFailed
from kbpf.head_start import HeadStart
from kbpf.model.objects import Node
from tests.builders import node

PATIENCE_S = 30


class Datapath:
    """Makes maps at once, and programs when it may."""

    def __init__(self, fails_at: str = "") -> None:
        self.fails_at = fails_at
        self.done: list[str] = []
        self.may_go_on, self.ended = threading.Event(), threading.Event()

    def load(self, maps_are_made: Callable[[], None]) -> None:
        try:
            self._do("maps")
            maps_are_made()
            assert self.may_go_on.wait(PATIENCE_S)
            self._do("programs")
        finally:
            self.ended.set()

    def _do(self, what: str) -> None:
        if self.fails_at == what:
            raise LoadFailed("no compiler")
        self.done.append(what)


def test_whoever_waits_for_the_maps_goes_on_while_the_programs_are_loaded():
    datapath, asked = Datapath(), list[Node | None]()

    def make(own: Node | None) -> Datapath:
        asked.append(own)
        return datapath

    head_start, own = HeadStart(make), node("n1")
    head_start.begin(own)
    head_start.wait_for_maps()
    assert (asked, datapath.done) == ([own], ["maps"])
    datapath.may_go_on.set()
    assert datapath.ended.wait(PATIENCE_S)
    assert datapath.done == ["maps", "programs"]


def test_where_it_never_began_nobody_waits():
    HeadStart(lambda own: Datapath()).wait_for_maps()


@pytest.mark.parametrize("step", ["maps", "programs"])
def test_a_step_that_fails_keeps_nobody_from_going_on(step: str):
    datapath = Datapath(fails_at=step)
    datapath.may_go_on.set()
    head_start = HeadStart(lambda own: datapath)
    head_start.begin(None)
    head_start.wait_for_maps()
    assert datapath.ended.wait(PATIENCE_S)


def test_a_datapath_that_cannot_be_made_keeps_nobody_from_going_on():
    def make(own: Node | None) -> Datapath:
        raise LoadFailed("no cgroup2")

    head_start = HeadStart(make)
    head_start.begin(None)
    head_start.wait_for_maps()
