"""The health server: /healthz and /livez on --healthz-bind-address.

It runs in threads of its own and only reads snapshots. An address that cannot be bound is reported and tried again; it
never stops the proxy, since traffic is worth more than its health port.
"""

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog

from kbpf.config import ListenAddress
from kbpf.observe.health import HealthTracker

log = structlog.get_logger()

RETRY_S = 5.0
"""kube-proxy's own interval."""
POLL_S = 0.25
"""How soon a stop is noticed."""


class HealthServer:
    def __init__(self, address: ListenAddress, health: HealthTracker) -> None:
        self._address = address
        self._health = health
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="healthz", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        reported = ""
        while not self._stopping.is_set():
            try:
                server = _bind(self._address, _handler(self._health))
            except OSError as error:
                if str(error) != reported:
                    log.warning(f"health server: {self._address}: {error.strerror}; trying again every {RETRY_S:.0f} s")
                    reported = str(error)
                self._stopping.wait(RETRY_S)
                continue
            with server:
                server.timeout = POLL_S
                while not self._stopping.is_set():
                    server.handle_request()


def _bind(address: ListenAddress, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            # A client that went away in the middle of its answer is no news.
            log.debug(f"health server: a request of {client_address} failed", exc_info=True)

    return Server((address.host, address.port), handler)


def _handler(health: HealthTracker) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            path = self.path.partition("?")[0]
            if path not in ("/healthz", "/livez"):
                self.send(HTTPStatus.NOT_FOUND, b"404 page not found\n", "text/plain; charset=utf-8")
                return
            now = health.snapshot()
            is_good = now.is_healthy and (now.is_node_eligible or path == "/livez")
            status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
            self.send(status, now.body(with_node=path == "/healthz"), "application/json")

        do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815  (names that http.server looks up)

        def send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (signature of the base class)
            log.debug(format % args)

    return Handler
