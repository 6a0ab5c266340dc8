"""A head start for the eBPF programs: they are compiled while the initial lists of a large cluster still come in.

The proxier says when the Node is known, on which the programs depend. The maps come first: the first sync waits for
them alone, fills them while the programs are still compiled, and waits for those when it has written everything.
Programs and maps are in force nowhere before that: traffic sees nothing of them until that sync attaches them.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from kbpf.errors import KbpfError
from kbpf.model.objects import Node

log = logging.getLogger(__name__)


class Loadable(Protocol):
    """A datapath that can be loaded ahead of its first sync."""

    def load(self, maps_are_made: Callable[[], None]) -> None:
        """Says when there are maps. Who else wants to load waits from then on, until all is done. Raises KbpfError."""
        ...


class HeadStart:
    def __init__(self, datapath: Callable[[Node | None], Loadable]) -> None:
        self._datapath = datapath
        self._has_begun = False
        self._maps_are_made = threading.Event()

    def begin(self, own: Node | None) -> None:
        """Load for this Node; None: the cluster knows none. Returns at once."""
        self._has_begun = True
        # A daemon thread: a stop does not wait for the compiler.
        threading.Thread(target=self._run, args=(own,), name="head-start", daemon=True).start()

    def wait_for_maps(self) -> None:
        """Until they are there, or cannot be made ahead; at once if it never began."""
        if self._has_begun:
            self._maps_are_made.wait()

    def _run(self, own: Node | None) -> None:
        try:
            self._datapath(own).load(self._maps_are_made.set)
        except KbpfError as error:
            log.debug(f"no head start: {error}")  # the first sync tries again, and tells
        finally:
            self._maps_are_made.set()
