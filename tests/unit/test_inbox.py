"""The bounded way from sources to the control thread."""

import queue
import threading

import pytest

from kbpf.inbox import Inbox
from kbpf.model.events import Kind, Synced

EVENT = Synced(Kind.NODE)


def in_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_events_come_out_in_order():
    inbox = Inbox()
    for kind in Kind:
        inbox.put(Synced(kind))
    assert [inbox.take(0) for _ in Kind] == [Synced(kind) for kind in Kind]
    with pytest.raises(queue.Empty):
        inbox.take(0)


def test_a_source_waits_while_too_many_are_waiting_and_loses_nothing():
    inbox = Inbox(most_waiting=2)
    source = in_thread(lambda: [inbox.put(EVENT) for _ in range(50)])
    source.join(0.1)
    assert source.is_alive()
    assert [inbox.take(5) for _ in range(50)] == [EVENT] * 50
    source.join(5)
    assert not source.is_alive()


def test_an_interruption_finds_room_at_any_time():
    inbox = Inbox(most_waiting=1)
    inbox.put(EVENT)
    inbox.interrupt()
    assert [inbox.take(0), inbox.take(0)] == [EVENT, None]


def test_after_the_end_no_source_waits_for_ever():
    inbox = Inbox(most_waiting=1)
    source = in_thread(lambda: [inbox.put(EVENT) for _ in range(3)])
    inbox.close()
    source.join(5)
    assert not source.is_alive()
