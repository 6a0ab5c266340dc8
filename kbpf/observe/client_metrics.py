"""Requests to the API server, under the names that every Kubernetes client has for them."""

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class ClientMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server, by status code or <error>",
            ("code", "method", "host"),
            registry=registry,
        )
        self._duration = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server began to answer",
            ("verb", "host"),
            buckets=BUCKETS,
            registry=registry,
        )

    def asked(self, method: str, host: str, status: int | None, duration_s: float) -> None:
        """Any thread may call it. `status` is None when there was no answer."""
        code = "<error>" if status is None else str(status)
        self._requests.labels(code, method, host).inc()
        self._duration.labels(method, host).observe(duration_s)
