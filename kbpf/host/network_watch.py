"""Notices when devices, addresses or default routes of this node change.

The kernel's messages are only the occasion to look: a pod that starts causes several and changes nothing that matters.
`server` runs it beside the control loop.
"""

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Hashable

from kbpf.errors import HostError

log = logging.getLogger(__name__)

GROUPS = 0x1 | 0x10 | 0x100 | 0x40 | 0x400
"""RTMGRP_: links, addresses and routes of both families."""
REST_S = 0.5
RECEIVE_BYTES = 65536


class NetworkWatch:
    def __init__(self, look: Callable[[], Hashable], changed: Callable[[], None]) -> None:
        """`look` tells what matters; `changed` is called when it tells something else than before."""
        self._look, self._changed = look, changed
        self._stopping, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="network-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        os.write(self._wake, b"!")
        self._thread.join()
        for fd in (self._stopping, self._wake):
            os.close(fd)

    def _run(self) -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as messages:
            messages.bind((0, GROUPS))
            seen = self._seen(None)
            while self._wait_for_a_message(messages):
                now = self._seen(seen)
                if now != seen:
                    seen = now
                    self._changed()

    def _wait_for_a_message(self, messages: socket.socket) -> bool:
        """A burst of messages is one. False: it is time to stop."""
        if self._is_stopping_after(None, messages.fileno()) or self._is_stopping_after(REST_S):
            return False
        try:
            while messages.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT):
                pass
        except OSError:  # nothing left, or more than the socket holds: either way it is time to look
            pass
        return True

    def _is_stopping_after(self, seconds: float | None, *others: int) -> bool:
        """Wait for the end, for so long, or for another descriptor. Not by select, which knows 1,024 descriptors."""
        waiting = select.poll()
        for descriptor in (self._stopping, *others):
            waiting.register(descriptor, select.POLLIN)
        ready = waiting.poll(None if seconds is None else seconds * 1000)
        return any(descriptor == self._stopping for descriptor, _ in ready)

    def _seen(self, before: Hashable) -> Hashable:
        try:
            return self._look()
        except HostError as error:
            log.warning(str(error))
            return before
