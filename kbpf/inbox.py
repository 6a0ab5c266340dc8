"""Events on their way from the threads of sources to the control thread, a bounded number of them.

At the start a source is several times faster than the trackers. Without a bound, the decoded objects of the whole
cluster would lie here at once, and what they took of the memory would not come back: 30 MB with 10,000 Services.
"""

import queue
import time

from kbpf.model.events import Event, SourceFailed

MOST_WAITING = 2000
LOOK_AGAIN_S = 0.005
"""The control thread takes as many as may wait in several times that; a semaphore would cost more than an event."""
GATHERING_S = 0.01
"""In that time a source delivers some hundred."""


class Inbox:
    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._events: queue.SimpleQueue[Event | SourceFailed | None] = queue.SimpleQueue()
        self._most_waiting = most_waiting
        self._is_closed = False

    def put(self, event: Event | SourceFailed) -> None:
        """Waits for room. Called by the threads of sources, in the order in which things happened."""
        while self._events.qsize() >= self._most_waiting:
            if self._is_closed:
                return
            time.sleep(LOOK_AGAIN_S)
        self._events.put(event)

    def interrupt(self) -> None:
        """Whoever takes events gets None in its turn. Never waits: safe in a signal handler."""
        self._events.put(None)

    def take(self, timeout_s: float | None) -> Event | SourceFailed | None:
        """The oldest event. Raises queue.Empty when there is none for so long; None: wait for ever."""
        return self._events.get(timeout=timeout_s) if timeout_s != 0 else self._events.get_nowait()

    def gather(self) -> None:
        """Let more events come: to be woken for each of many costs more than to take it."""
        time.sleep(GATHERING_S)

    def close(self) -> None:
        """Nobody takes any more: whoever waits for room may go."""
        self._is_closed = True
