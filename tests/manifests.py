"""Manifest files from the objects that tests/builders.py builds."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from kbpf.model.objects import EndpointSlice, Node, Service

VERSIONS: dict[type[object], str] = {Service: "v1", Node: "v1", EndpointSlice: "discovery.k8s.io/v1"}


def manifest(*objects: Service | EndpointSlice | Node) -> str:
    """The objects as one YAML text of several documents, as `kubectl get -o yaml` spells them."""
    return yaml.safe_dump_all([document(thing) for thing in objects], sort_keys=False)


def write_manifests(directory: Path, *objects: Service | EndpointSlice | Node, name: str = "objects.yaml") -> Path:
    """Replace a file of the directory in one step, as editors do. Returns the directory, for `--manifests`.

    A `name` that ends in .json makes it one List, which is written and read much faster.
    """
    directory.mkdir(exist_ok=True)
    unfinished = directory.parent / f".{name}.unfinished"
    unfinished.write_text(json_list(*objects) if name.endswith(".json") else manifest(*objects))
    unfinished.replace(directory / name)
    return directory


def json_list(*objects: Service | EndpointSlice | Node) -> str:
    items = [document(thing) for thing in objects]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()


def document(thing: Service | EndpointSlice | Node) -> dict[str, object]:
    kind = type(thing)
    return {"apiVersion": VERSIONS[kind], "kind": kind.__name__, **_without_nulls(msgspec.to_builtins(thing))}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(field) for name, field in value.items() if field is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
