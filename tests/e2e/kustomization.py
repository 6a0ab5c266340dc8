"""What an operator writes over an overlay of deploy/kubernetes: the pods' range, and the way to the API server.

And what this machine wants besides: a container cannot be given a capability that the machine itself does not have.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.control_plane import ControlPlane
from tests.e2e.network import CLUSTER_CIDR, CONTROL_ADDRESS

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
NAMESPACE = "kube-system"
API_SERVER_PORT = 6443
# Numbers of linux/capability.h that a restricted machine may lack.
CAPABILITY_NUMBERS = {"SYS_RESOURCE": 24}


@dataclass(frozen=True, slots=True)
class Kustomizations:
    """Folders for `kubectl apply --kustomize`."""

    running: Path
    cleanup: Path
    """The same with the component that cleans the nodes."""


def write(control_plane: ControlPlane, overlay: str) -> Kustomizations:
    folder = control_plane.folder.cluster / "kustomize" / Path(overlay).name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration(overlay)))
    (folder / "api-server.env").write_text(
        f"KUBERNETES_SERVICE_HOST={CONTROL_ADDRESS}\nKUBERNETES_SERVICE_PORT={API_SERVER_PORT}\n"
    )
    rendered = yaml.safe_load_all(control_plane.kubectl("kustomize", str(KUBERNETES / overlay)))
    (daemonset,) = [one for one in rendered if one["kind"] == "DaemonSet"]
    _write(
        folder,
        namespace=NAMESPACE,
        # kustomize takes no absolute path.
        resources=[os.path.relpath(KUBERNETES / overlay, folder)],
        configMapGenerator=[
            {"name": "kbpf", "behavior": "replace", "files": ["config.yaml"]},
            {"name": "kbpf-api-server", "behavior": "replace", "envs": ["api-server.env"]},
        ],
        patches=without_capabilities(daemonset, missing_capabilities()),
    )
    cleanup = folder.with_name(f"{folder.name}-cleanup")
    cleanup.mkdir()
    component = os.path.relpath(KUBERNETES / "components/cleanup", cleanup)
    _write(cleanup, resources=[os.path.relpath(folder, cleanup)], components=[component])
    return Kustomizations(folder, cleanup)


def _write(folder: Path, **content: object) -> None:
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**kind, **content}))


def configuration(overlay: str) -> dict[str, Any]:
    """The overlay's own file, or else that of the base, with this cluster's pods."""
    own = KUBERNETES / overlay / "config.yaml"
    found = own if own.exists() else KUBERNETES / "base/config.yaml"
    return {**yaml.safe_load(found.read_text()), "clusterCIDR": CLUSTER_CIDR}


def missing_capabilities(status: Path = Path("/proc/self/status")) -> tuple[str, ...]:
    """Those that nothing on this machine can have."""
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("CapBnd:")]
    bounding = int(line.split()[1], 16)
    return tuple(name for name, number in CAPABILITY_NUMBERS.items() if not bounding >> number & 1)


def without_capabilities(daemonset: dict[str, Any], missing: Sequence[str]) -> list[dict[str, Any]]:
    """The patch that takes them out of the container's list; none where it does not ask for them."""
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    asked = container["securityContext"].get("capabilities", {}).get("add", [])
    if not set(asked) & set(missing):
        return []
    path = "/spec/template/spec/containers/0/securityContext/capabilities/add"
    kept = [name for name in asked if name not in missing]
    operation = {"op": "replace", "path": path, "value": kept}
    return [{"target": {"kind": "DaemonSet", "name": "kbpf"}, "patch": json.dumps([operation])}]
