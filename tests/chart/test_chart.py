"""The Helm chart: the same objects as the kustomizations, whichever overlay, and taken by a real API server."""

from pathlib import Path

import pytest

from tests.chart.rendering import (
    CHART,
    KUBERNETES,
    NAMESPACE,
    Refused,
    chart,
    helm,
    kubectl,
    kustomized,
    objects,
    values_of,
)
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.chart

OVERLAYS = ["base", *sorted(path.name for path in (KUBERNETES / "overlays").iterdir())]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_gives_what_the_kustomization_gives(overlay: str) -> None:
    assert objects(chart(*values_of(overlay))) == objects(kustomized(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_helm_finds_no_fault(overlay: str) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, *values_of(overlay))


@pytest.mark.parametrize(
    "setting",
    ["datapath=ipvs", "config.kbpf.fallback=nothing", "config.kind=Other", "no.such.value=1", "maxUnavailable=0"],
)
def test_a_wrong_value_is_refused(setting: str) -> None:
    with pytest.raises(Refused, match="values don't meet the specifications"):
        chart("--set", setting)


def test_another_configuration_has_another_name() -> None:
    """Or the nodes would not be rolled out one by one."""

    def names(*options: str) -> set[str]:
        return {line for line in chart(*options).splitlines() if line.startswith("  name: kbpf-")}

    changed = names() ^ names("--set", "config.clusterCIDR=10.244.0.0/16")
    assert len(changed) == 2
    assert not any("api-server" in name for name in changed)


def test_the_way_to_the_api_server_is_given_on() -> None:
    rendered = objects(chart("--set", "apiServer.host=192.0.2.10,apiServer.port=6443"))
    data = rendered["ConfigMap", "kbpf-api-server-HASH"]["data"]
    assert data == {"KUBERNETES_SERVICE_HOST": "192.0.2.10", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.mark.root
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_it(control_plane: ControlPlane, overlay: str, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(chart(*values_of(overlay)))
    server = f"--kubeconfig={control_plane.kubeconfig()}"
    said = kubectl(server, "apply", "--dry-run=server", "--validate=strict", "--filename", manifests)
    assert "daemonset.apps/kbpf created (server dry run)" in said


@pytest.mark.root
def test_a_release_is_installed_upgraded_and_uninstalled(control_plane: ControlPlane) -> None:
    server = f"--kubeconfig={control_plane.kubeconfig()}"
    where = (server, f"--namespace={NAMESPACE}")

    def configurations() -> set[str]:
        listed = kubectl(*where, "get", "configmaps", "--selector=helm.sh/chart", "--output=name")
        return {name for name in listed.splitlines() if "api-server" not in name}

    helm("install", "kbpf", CHART, *where)
    first = configurations()
    helm("upgrade", "kbpf", CHART, *where, "--set", "config.clusterCIDR=10.244.0.0/16")
    # The first stays: a node that the upgrade has not reached yet may have to start its pod again.
    assert len(configurations()) == 2
    assert first < configurations()
    helm("uninstall", "kbpf", *where)
    assert kubectl(*where, "get", "daemonsets,serviceaccounts", "--selector=helm.sh/chart", "--output=name") == ""
