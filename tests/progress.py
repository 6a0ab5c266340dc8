"""What a long run says while it works, with the time since it began: the rig of `tests/e2e`, the machines of `vagrant`.

Nothing but the standard library: `vagrant/run` needs no environment.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_STARTED = time.monotonic()


def say(text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _STARTED), 60)
    print(f"[{minutes:3}:{seconds:02}] {text}", flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Says what begins, and how long it took once it has ended well."""
    say(f"{text} …")
    started = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - started:.0f} s")
