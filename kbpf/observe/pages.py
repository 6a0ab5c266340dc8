"""What the metrics server answers: kube-proxy's paths, which scripts and tests read, and /version.

Everything here is a snapshot or cannot change; nothing needs the control thread.
"""

import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from kbpf import __version__
from kbpf.clock import Clock
from kbpf.observe.http import NOT_FOUND, TEXT, Response
from kbpf.observe.metrics import CONTENT_TYPE

NOTE = "Warning: for debugging by people; programs must not rely on its form."


class Process(msgspec.Struct, frozen=True):
    """`configuration` is the KubeProxyConfiguration in force, `flags` what each flag comes to."""

    started_at: float
    configuration: Mapping[str, object]
    flags: Mapping[str, str]


class MetricsPages:
    def __init__(
        self,
        process: Process,
        metrics: Callable[[], bytes],
        mode: Callable[[], str],
        clock: Clock,
        status: Callable[[], Mapping[str, object]] = dict,
        debug: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        """`mode` is "ebpf" or "iptables"; `status` is for `kbpf status`; `debug` are further pages, of text."""
        self._process = process
        self._mode = mode
        self._clock = clock
        self._indicators = Indicators()
        self._pages: dict[str, Callable[[], Response]] = {
            "/configz": self._configz,
            "/flagz": lambda: _text(f"\nkbpf flagz\n{NOTE}\n{_lines(process.flags, ' ')}"),
            "/healthz": self._healthz,
            "/metrics": lambda: Response(HTTPStatus.OK, metrics(), CONTENT_TYPE),
            "/metrics/slis": lambda: Response(HTTPStatus.OK, self._indicators.text(), CONTENT_TYPE),
            "/proxyMode": lambda: _text(mode()),
            "/status": lambda: Response(HTTPStatus.OK, msgspec.json.encode(status())),
            "/statusz": self._statusz,
            "/version": _version,
            **{path: _text_page(text) for path, text in (debug or {}).items()},
        }

    def answer(self, path: str) -> Response:
        page = self._pages.get(path)
        return page() if page else NOT_FOUND

    def _healthz(self) -> Response:
        """Of this server, and no word about the proxy: that one has an address of its own."""
        self._indicators.checked()
        return _text("ok")

    def _configz(self) -> Response:
        document = {"kubeproxy.config.k8s.io": self._process.configuration}
        return Response(HTTPStatus.OK, msgspec.json.encode(document))

    def _statusz(self) -> Response:
        started = datetime.fromtimestamp(self._process.started_at, UTC)
        minutes, seconds = divmod(int(self._clock.now() - self._process.started_at), 60)
        hours, minutes = divmod(minutes, 60)
        status = {
            "Started": f"{started:%a %b %d %H:%M:%S} UTC {started.year}",
            "Up": f"{hours} hr {minutes:02} min {seconds:02} sec",
            "Python version": platform.python_version(),
            "Binary version": __version__,
            "Datapath": self._mode(),
            "Paths": " ".join(sorted(self._pages)),
        }
        return _text(f"\nkbpf statusz\n{NOTE}\n\n{_lines(status, '= ')}")


class Indicators:
    """/metrics/slis: whether the process answers at all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("name", "type")
        health = Gauge("kubernetes_healthcheck", "The result of a health check", labels, registry=self._registry)
        health.labels("ping", "healthz").set(1)
        name, text = "kubernetes_healthchecks_total", "Results of health checks"
        self._checks = Counter(name, text, (*labels, "status"), registry=self._registry)

    def checked(self) -> None:
        self._checks.labels("ping", "healthz", "success").inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _version() -> Response:
    document = {
        "version": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    return Response(HTTPStatus.OK, msgspec.json.encode(document))


def _text(text: str) -> Response:
    return Response(HTTPStatus.OK, text.encode(), TEXT)


def _text_page(text: Callable[[], str]) -> Callable[[], Response]:
    return lambda: _text(text())


def _lines(values: Mapping[str, str], separator: str) -> str:
    return "".join(f"{name}{separator}{value}\n" for name, value in values.items())
