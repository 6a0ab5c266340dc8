"""The chart and the kustomizations as parsed objects, in one form, so that they can be compared.

What may differ is taken away here: the hash at the end of a ConfigMap's name, the spelling of the configuration inside
it, and the labels and annotations that belong to Helm.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.programs import built

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy/helm/kbpf"
KUBERNETES = REPOSITORY / "deploy/kubernetes"
NAMESPACE = "kube-system"

_BUILD = Path(__file__).with_name("build.sh")
_HASHED = re.compile(r"\b(kbpf|kbpf-api-server)-[0-9a-z]{10}\b")
_HELM_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_HELM_ANNOTATIONS = ("helm.sh/resource-policy",)

Objects = dict[tuple[str, str], dict[str, Any]]


class Refused(Exception):
    """A program did not do what it was asked; the message is what it said."""


def helm(*arguments: str | Path) -> str:
    directory = subprocess.run([_BUILD, "--directory"], capture_output=True, text=True, check=True).stdout.strip()
    return _run([Path(directory) / "helm", *arguments])


def kubectl(*arguments: str | Path) -> str:
    return _run([built("kubectl"), *arguments])


def values_of(overlay: str) -> list[str]:
    """The options that make the chart into what the overlay is."""
    return [] if overlay == "base" else [f"--values={CHART / 'ci' / f'{overlay}-values.yaml'}"]


def chart(*options: str) -> str:
    return helm("template", "kbpf", CHART, f"--namespace={NAMESPACE}", *options)


def kustomized(overlay: str) -> str:
    return kubectl("kustomize", KUBERNETES / ("base" if overlay == "base" else f"overlays/{overlay}"))


def objects(manifests: str) -> Objects:
    """By kind and name, without what may differ."""
    parsed = [one for one in yaml.safe_load_all(_HASHED.sub(r"\1-HASH", manifests)) if one]
    named = {(one["kind"], one["metadata"]["name"]): _without_helms_own(one) for one in parsed}
    assert len(named) == len(parsed)
    return named


def _without_helms_own(thing: dict[str, Any]) -> dict[str, Any]:
    metadata = thing["metadata"]
    for field, owned in (("labels", _HELM_LABELS), ("annotations", _HELM_ANNOTATIONS)):
        kept = {key: value for key, value in metadata.pop(field, {}).items() if key not in owned}
        if kept:
            metadata[field] = kept
    if thing["kind"] == "ConfigMap" and "config.yaml" in thing.get("data", {}):
        thing["data"]["config.yaml"] = yaml.safe_load(thing["data"]["config.yaml"])
    return thing


def _run(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout
