"""The programs are loaded in a thread of their own, and a failure there is left to the first sync."""

import threading

from kbpf.errors import LoadFailed
from kbpf.head_start import HeadStart
from kbpf.model.objects import Node
from tests.builders import node


def test_it_loads_for_the_node_that_it_is_given_while_others_go_on():
    may_end, loaded = threading.Event(), list[Node | None]()

    def load(own: Node | None) -> None:
        may_end.wait(30)
        loaded.append(own)

    head_start, own = HeadStart(load), node("n1")
    head_start.begin(own)
    assert loaded == []
    may_end.set()
    head_start.wait()
    assert loaded == [own]


def test_where_it_never_began_nobody_waits():
    HeadStart(lambda own: None).wait()


def test_a_load_that_fails_keeps_nobody_from_going_on():
    def load(own: Node | None) -> None:
        raise LoadFailed("no compiler")

    head_start = HeadStart(load)
    head_start.begin(None)
    head_start.wait()
