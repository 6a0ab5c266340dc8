"""Ends the process when its configuration file changes, so that what restarts it starts it with the new one.

The content is compared, once a second: a mounted ConfigMap changes by a swap of links that no watch on the file sees.
"""

import threading
from collections.abc import Callable
from pathlib import Path

LOOK_EVERY_S = 1.0


class ConfigurationWatch:
    """`changed` is called once, from a thread of its own. A file that is gone or cannot be read has not changed."""

    def __init__(self, path: Path, text: bytes, changed: Callable[[], None], every_s: float = LOOK_EVERY_S) -> None:
        self._path = path
        self._text = text
        self._changed = changed
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="configuration", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                text = self._path.read_bytes()
            except OSError:
                continue
            # An empty file is one that somebody is about to write.
            if text and text != self._text:
                self._changed()
                return
