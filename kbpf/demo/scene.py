"""What the demo plays: Services and pods, read from manifests as an API server would give them.

stage.py builds the pods, run.py sends requests to the frontends. The manifests are the example files of the project,
so this reads just what they use; the product's own reading of manifests is in `kbpf.source`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kbpf.demo.exchange import Protocol, spell
from kbpf.model.objects import SERVICE_NAME_LABEL

_PACKAGE = Path(__file__).parents[1]


class Frontend(msgspec.Struct, frozen=True):
    """An address and port of a Service, and who must answer there."""

    service: str
    address: str
    port: int
    protocol: Protocol
    backends: tuple[tuple[str, int], ...]
    keeps_clients: bool
    """Session affinity: one client meets one backend."""

    @property
    def name(self) -> str:
        return f"{spell(self.address, self.port)}/{self.protocol}"

    @property
    def backend_names(self) -> tuple[str, ...]:
        return tuple(spell(*backend) for backend in self.backends)


class Scene(msgspec.Struct, frozen=True):
    frontends: tuple[Frontend, ...]
    pods: dict[str, tuple[str, ...]]
    """The addresses of each pod, by its name."""


def examples() -> Path:
    """The example manifests: beside the package in a checkout, inside it when it is installed."""
    return next(path for path in (_PACKAGE / "examples", _PACKAGE.parent / "examples") if path.is_dir())


def read_scene(directory: Path) -> Scene:
    documents = [document for path in sorted(directory.glob("*.yaml")) for document in read(path)]
    services = [document for document in documents if document["kind"] == "Service"]
    slices = [document for document in documents if document["kind"] == "EndpointSlice"]
    frontends = [frontend for service in services for frontend in _frontends(service, slices)]
    # The usual ones first: a table that begins with session affinity would look as if nothing was balanced.
    return Scene(tuple(sorted(frontends, key=lambda frontend: frontend.keeps_clients)), _pods(slices))


def read(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def let_leave(directory: Path, service: str, address: str) -> None:
    """Take an endpoint out of the slices of a Service: one file is replaced, in one step."""
    for path in sorted(directory.glob("*.yaml")):
        documents = read(path)
        for document in _slices_of(service, documents):
            document["endpoints"] = [each for each in document["endpoints"] if address not in each["addresses"]]
        if documents != read(path):
            write(path, yaml.safe_dump_all(documents, sort_keys=False))


def write(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new one, never half of it."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)


def _frontends(service: dict[str, Any], slices: list[dict[str, Any]]) -> Iterator[Frontend]:
    name, spec = service["metadata"]["name"], service["spec"]
    for address in spec["clusterIPs"]:
        for port in spec["ports"]:
            backends = tuple(_backends(name, address, port["name"], slices))
            is_sticky = spec.get("sessionAffinity") == "ClientIP"
            yield Frontend(name, address, port["port"], port["protocol"].lower(), backends, is_sticky)


def _backends(service: str, like: str, port_name: str, slices: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    family = "IPv6" if ":" in like else "IPv4"
    for each in _slices_of(service, slices):
        if each["addressType"] == family:
            (port,) = [port["port"] for port in each["ports"] if port["name"] == port_name]
            yield from ((endpoint["addresses"][0], port) for endpoint in each["endpoints"])


def _slices_of(service: str, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in documents if each["metadata"].get("labels", {}).get(SERVICE_NAME_LABEL) == service]


def _pods(slices: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    pods: dict[str, dict[str, None]] = {}
    for endpoint in (endpoint for each in slices for endpoint in each["endpoints"]):
        pods.setdefault(endpoint["targetRef"]["name"], {})[endpoint["addresses"][0]] = None
    return {name: tuple(addresses) for name, addresses in pods.items()}
