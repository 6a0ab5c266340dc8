"""What a process looks like from inside, for people who look for a defect: `enableProfiling` opens these pages.

Where kube-proxy has Go's profiles there are the stacks of all threads and the objects in memory, by type. Neither needs
the control thread, and neither costs anything before somebody asks.
"""

import gc
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable

SHOWN_TYPES = 50


def stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for identity, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"{names.get(identity, 'unnamed')}:\n{lines}")
    return "\n".join(parts)


def objects() -> str:
    """Those that Python's collector knows; plain values are in none of the counts."""
    counts = Counter(type(each).__qualname__ for each in gc.get_objects())
    lines = [f"{count:>10}  {name}\n" for name, count in counts.most_common(SHOWN_TYPES)]
    return f"{sum(counts.values())} objects, {gc.get_freeze_count()} of them frozen\n{''.join(lines)}"


DEBUG_PAGES: dict[str, Callable[[], str]] = {"/debug/objects": objects, "/debug/stacks": stacks}
