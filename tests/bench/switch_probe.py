"""When does a Service lead to another port? A child process on the node under test that connects without a pause.

`SwitchProbe` is the parent's half. The child, `python -m tests.bench.switch_probe`, listens on both ports itself, so a
connection is known to have arrived in the moment in which it does. Times are those of the monotonic clock, which is one
for the whole machine.
"""

import json
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from kbpf.demo.child import Child
from kbpf.demo.place import Place

PATIENCE_S = 0.01
"""Until a connection that went nowhere is tried again."""


class SwitchProbe:
    def __init__(self, place: Place, service: tuple[str, int], address: str, ports: Sequence[int]) -> None:
        order = {"place": place, "service": service, "address": address, "ports": list(ports)}
        self._child = Child("tests.bench.switch_probe", order)
        self._child.hear()

    def begin(self, port: int, within_s: float) -> None:
        """Connect until a connection arrives at this port, or so many seconds are over."""
        self._child.tell([port, within_s])

    def arrived(self) -> float | None:
        """When that was; None: not in the time that was given."""
        heard = self._child.hear()
        return None if heard is None else float(heard)

    def close(self) -> None:
        self._child.close()


class _Prober:
    def __init__(self, service: tuple[str, int], address: str, ports: Sequence[int]) -> None:
        self._service = service
        self._selector = selectors.DefaultSelector()
        for port in ports:
            self._selector.register(socket.create_server((address, port)), selectors.EVENT_READ, port)

    def arrival_at(self, port: int, within_s: float) -> float | None:
        deadline = time.monotonic() + within_s
        while self._port_reached() != port:
            if time.monotonic() > deadline:
                return None
        return time.monotonic()

    def _port_reached(self) -> int | None:
        with socket.socket() as client:
            client.setblocking(False)
            try:
                client.connect(self._service)
            except BlockingIOError:
                pass
            except OSError:  # refused, or nowhere to go
                time.sleep(PATIENCE_S)
                return None
            ready = self._selector.select(PATIENCE_S)
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                with suppress(OSError):
                    key.fileobj.accept()[0].close()
            return ready[0][0].data if ready else None


def main() -> None:
    order = json.loads(sys.stdin.readline())
    Place(**order["place"]).enter()
    prober = _Prober(tuple(order["service"]), order["address"], order["ports"])
    print(json.dumps("listening"), flush=True)
    for line in sys.stdin:
        print(json.dumps(prober.arrival_at(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
