"""What the daemon asks of a source of objects.

A source runs in a thread of its own and only decodes and delivers; the control thread takes the events from its queue.
"""

from collections.abc import Callable
from typing import Protocol

from kbpf.model.events import Event, SourceFailed

Emit = Callable[[Event | SourceFailed], None]
"""Called from the source's thread, one event at a time, in order; usually the `put` of a queue. It must not raise."""


class Source(Protocol):
    def start(self, emit: Emit) -> None:
        """Begin to deliver: everything there is, `Synced` once for each Kind, then what changes."""
        ...

    def stop(self) -> None:
        """Deliver nothing more. Safe to call twice, and before `start`."""
        ...
