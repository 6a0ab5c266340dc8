"""The manifests of `deploy/kubernetes`, judged by a real API server: every kind, field and value is known to it."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import built

pytestmark = [pytest.mark.root, pytest.mark.cluster]

DEPLOY = Path(__file__).parents[2] / "deploy/kubernetes"
KUSTOMIZATIONS = ["base", *sorted(f"overlays/{path.name}" for path in (DEPLOY / "overlays").iterdir())]


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_the_api_server_takes_the_manifests(control_plane: ControlPlane, kustomization: str) -> None:
    command = [built("kubectl"), f"--kubeconfig={control_plane.kubeconfig()}", "apply", "--dry-run=server"]
    command += ["--validate=strict", f"--kustomize={DEPLOY / kustomization}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "daemonset.apps/kbpf created (server dry run)" in done.stdout
