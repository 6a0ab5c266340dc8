"""What this node should do, decided afresh from the source that the daemon reads: manifests or the API server.

`kbpf verify` and `kbpf explain` hold the kernel against it. The source is read once and let go.
"""

import queue
import time
from collections.abc import Iterator

from kbpf.clock import SystemClock
from kbpf.config import Config
from kbpf.errors import KbpfError
from kbpf.feed import make_feed
from kbpf.model.events import Event, Kind, SourceFailed, Synced
from kbpf.rendering import Decided, decide

PATIENCE_S = 30.0

Inbox = queue.SimpleQueue[Event | SourceFailed]


def read_wanted(config: Config, timeout_s: float = PATIENCE_S) -> Decided:
    """Raises KbpfError when the source cannot be read, UsageError when none is named and none is at hand."""
    source, inbox = make_feed(config, SystemClock(), _nobody_counts).source, Inbox()
    source.start(inbox.put)
    try:
        return decide(list(_initial(inbox, timeout_s)), config.node_name)
    finally:
        source.stop()


def _nobody_counts(method: str, host: str, status: int | None, duration_s: float) -> None:
    """Requests to the API server: those of the daemon are metrics, these are not."""


def _initial(inbox: Inbox, timeout_s: float) -> Iterator[Event]:
    """Everything until each kind of object was delivered once."""
    missing, deadline = set(Kind), time.monotonic() + timeout_s
    while missing:
        try:
            event = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise KbpfError(f"the source is not complete after {timeout_s:.0f} s") from None
        if isinstance(event, SourceFailed):
            raise event.error
        if isinstance(event, Synced):
            missing.discard(event.kind)
        else:
            yield event
