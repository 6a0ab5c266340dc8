"""/healthz and /livez on --healthz-bind-address: for load balancers, and for whoever restarts a proxy that hangs.

A node that is being removed answers 503 to the first, so that balancers leave it, and 200 to the second (KEP-3836).
"""

from collections.abc import Callable
from http import HTTPStatus

from kbpf.observe.health import HealthTracker
from kbpf.observe.http import NOT_FOUND, Answer, Response


def health_answer(health: HealthTracker, answered: Callable[[str, HTTPStatus], None]) -> Answer:
    """`answered` is told path and status of each answer."""

    def answer(path: str) -> Response:
        if path not in ("/healthz", "/livez"):
            return NOT_FOUND
        now = health.snapshot()
        is_good = now.is_healthy and now.is_node_eligible if path == "/healthz" else now.is_alive
        status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        answered(path, status)
        return Response(status, now.body(with_node=path == "/healthz"))

    return answer
