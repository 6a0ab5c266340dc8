"""What the rig writes over an overlay of `deploy/`: the pods' range, and no capability that the machine lacks."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.kustomization import configuration, missing_capabilities, without_capabilities
from tests.e2e.network import CLUSTER_CIDR


def daemonset(context: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"securityContext": context}]}}}}


def test_the_configuration_is_the_overlays_own_but_for_the_range_of_pods() -> None:
    for overlay in ("base", "overlays/restricted", "overlays/dual-stack"):
        found = configuration(overlay)
        assert found["clusterCIDR"] == CLUSTER_CIDR
        assert found["healthzBindAddress"] == "0.0.0.0:10256"
        assert found["kbpf"] == {"datapath": "auto", "fallback": "iptables"}


def test_a_capability_outside_of_the_bounding_set_is_missing(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n")
    assert missing_capabilities(status) == ()
    status.write_text("CapBnd:\t000001fffeffffff\n")
    assert missing_capabilities(status) == ("SYS_RESOURCE",)


def test_a_missing_capability_is_not_asked_for() -> None:
    asking = daemonset({"capabilities": {"add": ["BPF", "SYS_RESOURCE", "NET_ADMIN"]}})
    (patch,) = without_capabilities(asking, ["SYS_RESOURCE"])
    (operation,) = json.loads(patch["patch"])
    assert operation["op"] == "replace"
    assert operation["path"].endswith("/capabilities/add")
    assert operation["value"] == ["BPF", "NET_ADMIN"]


def test_who_does_not_ask_for_it_is_left_as_it_is() -> None:
    assert without_capabilities(daemonset({"privileged": True}), ["SYS_RESOURCE"]) == []
    assert without_capabilities(daemonset({"capabilities": {"add": ["BPF"]}}), ["SYS_RESOURCE"]) == []
