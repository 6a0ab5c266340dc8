"""`kbpf status`: the datapath that traffic meets, what it holds for each Service, and what it leaves to iptables.

The kernel is asked, so that the answer is right without a daemon too; the daemon adds why its datapath was chosen, and
when it last synced. Pure, but for `read_status`.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from kbpf.config import Config
from kbpf.model.address import host_port
from kbpf.model.held import HeldFrontend
from kbpf.model.table import Backend
from kbpf.questions.daemon import Answer, ask
from kbpf.questions.kernel import SPILLED, Kernel, read_kernel

UNNAMED = "(no name)"


class ServiceStatus(msgspec.Struct, frozen=True):
    """One service port, in both families if it has two."""

    name: str
    frontends: tuple[HeldFrontend, ...]

    @property
    def backends(self) -> tuple[Backend, ...]:
        return _joined(each.cluster for each in self.frontends)

    @property
    def local_backends(self) -> tuple[Backend, ...]:
        return _joined(each.local for each in self.frontends)


class Status(msgspec.Struct, frozen=True):
    kernel: Kernel
    daemon: Answer | None
    now: float
    services: tuple[ServiceStatus, ...]

    @property
    def deferred(self) -> dict[str, int]:
        """Frontends left to iptables, by reason."""
        frontends = (each for service in self.services for each in service.frontends)
        return dict(sorted(Counter(each.reason for each in frontends if each.reason).items()))

    @property
    def spilled(self) -> tuple[str, ...]:
        """Service ports that do not fit the maps."""
        found = (each for each in self.services if any(one.reason == SPILLED for one in each.frontends))
        return tuple(service.name for service in found)

    @property
    def sync_age_s(self) -> float | None:
        if self.daemon is None or self.daemon.last_sync is None:
            return None
        return max(0.0, self.now - self.daemon.last_sync)

    @property
    def reason(self) -> str:
        return self.daemon.reason if self.daemon and self.daemon.datapath == self.kernel.datapath else ""


def read_status(config: Config, now: float) -> Status:
    kernel = read_kernel(config)
    return status(kernel, ask(config.metrics_address), now)


def status(kernel: Kernel, daemon: Answer | None, now: float) -> Status:
    by_name: dict[tuple[str, str], list[HeldFrontend]] = {}
    for frontend in kernel.frontends:
        by_name.setdefault((frontend.service or UNNAMED, frontend.key.protocol.value), []).append(frontend)
    services = tuple(ServiceStatus(name, tuple(held)) for (name, _), held in by_name.items())
    return Status(kernel, daemon, now, services)


def document(status: Status) -> dict[str, Any]:
    """For machines; names are stable."""
    kernel, daemon = status.kernel, status.daemon
    return {
        "datapath": kernel.datapath,
        "reason": status.reason,
        "daemon": {
            "answers": daemon is not None,
            "lastSync": _rfc3339(daemon.last_sync) if daemon else None,
            "syncAgeSeconds": status.sync_age_s,
            "sentence": daemon.sentence if daemon else "",
            "fallbackReason": daemon.fallback_reason if daemon else "",
            "warnings": list(daemon.warnings) if daemon else [],
        },
        "counts": {
            "servicePorts": len(status.services),
            "frontends": sum(len(each.frontends) for each in status.services),
            "backends": len({backend for each in status.services for backend in _all_backends(each)}),
            "deferred": sum(status.deferred.values()),
        },
        "deferred": status.deferred,
        "spilled": list(status.spilled),
        "maps": {name: {"used": fill.used, "room": fill.room} for name, fill in _fill(kernel).items()},
        "rules": kernel.rule_counts,
        "programs": [
            {"hook": each.hook, "place": each.place, "attached": each.program_id is not None, "id": each.program_id}
            for each in kernel.attachments
        ],
        "services": [_service(each) for each in status.services],
        "notes": list(kernel.notes),
    }


def _service(service: ServiceStatus) -> dict[str, Any]:
    return {
        "name": service.name,
        "protocol": service.frontends[0].key.protocol.value,
        "frontends": [
            {
                "kind": each.kind.value,
                "family": each.key.family.value,
                "address": each.key.address,
                "port": each.key.port,
                "carrier": each.carrier,
                "deferred": each.reason,
            }
            for each in service.frontends
        ],
        "backends": _spelled(service.backends),
        "localBackends": _spelled(service.local_backends),
    }


def _fill(kernel: Kernel) -> dict[str, Any]:
    return dict(kernel.found.fill) if kernel.found else {}


def _spelled(backends: Iterable[Backend]) -> list[str]:
    return [host_port(each.address, each.port) for each in backends]


def _all_backends(service: ServiceStatus) -> tuple[Backend, ...]:
    return service.backends + service.local_backends


def _joined(lists: Iterable[tuple[Backend, ...]]) -> tuple[Backend, ...]:
    return tuple(sorted({backend for each in lists for backend in each}))


def _rfc3339(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
