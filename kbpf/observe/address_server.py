"""A server on an address from the configuration, such as --healthz-bind-address: bound now or later, or not at all.

An address that cannot be bound is reported once and tried again, and never stops the proxy, since traffic is worth more
than its health port; unless the operator wants it so (`bindAddressHardFail`).
"""

import logging
import threading
from collections.abc import Callable

from kbpf.config import ListenAddress
from kbpf.errors import HostError
from kbpf.observe.http import Answer, HttpThread

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""kube-proxy's own interval."""


class AddressServer:
    """`failed` is given the reason of a failure to bind, whenever it changes."""

    def __init__(
        self,
        name: str,
        address: ListenAddress,
        answer: Answer,
        *,
        must_listen: bool = False,
        failed: Callable[[str], None] = lambda reason: None,
        retry_s: float = RETRY_S,
    ) -> None:
        self._name, self._address, self._answer = name, address, answer
        self._must_listen, self._failed, self._retry_s = must_listen, failed, retry_s
        self._http: HttpThread | None = None
        self._stopping = threading.Event()
        self._retrying: threading.Thread | None = None
        self._reported = ""

    def start(self) -> None:
        """Raises HostError when it must listen and cannot."""
        if not self._bind():
            self._retrying = threading.Thread(target=self._retry, name=f"{self._name}-retry", daemon=True)
            self._retrying.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._retrying is not None:
            self._retrying.join()
        if self._http is not None:
            self._http.stop()

    def _retry(self) -> None:
        while not self._stopping.wait(self._retry_s) and not self._bind():
            pass

    def _bind(self) -> bool:
        try:
            self._http = self._http or HttpThread(self._name)
            self._http.listen(self._address, self._answer)
        except OSError as error:
            reason = f"{self._name} server: {self._address}: {error.strerror or error}"
            if reason != self._reported:
                self._reported = reason
                self._failed(reason)
                if self._must_listen:
                    raise HostError(reason) from error
                log.warning(f"{reason}; trying again every {self._retry_s:.0f} s")
            return False
        if self._reported:
            log.info(f"{self._name} server: listening on {self._address}")
        return True
