"""A head start for the eBPF programs: they are compiled while the initial lists of a large cluster still come in.

The proxier says when the Node is known, on which the programs depend, and the first sync waits for the end. Programs
and maps are then in the kernel, and in force nowhere: traffic sees nothing of them until that sync attaches them.
"""

import logging
import threading
from collections.abc import Callable

from kbpf.errors import KbpfError
from kbpf.model.objects import Node

log = logging.getLogger(__name__)


class HeadStart:
    def __init__(self, load: Callable[[Node | None], None]) -> None:
        self._load = load
        self._thread: threading.Thread | None = None

    def begin(self, own: Node | None) -> None:
        """Load for this Node; None: the cluster knows none. Returns at once."""
        # A daemon thread: a stop does not wait for the compiler.
        self._thread = threading.Thread(target=self._run, args=(own,), name="head-start", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it has ended, if it ever began."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, own: Node | None) -> None:
        try:
            self._load(own)
        except KbpfError as error:
            log.debug(f"no head start: {error}")  # the first sync tries again, and tells
