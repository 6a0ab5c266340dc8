"""The API server that the comparisons are fed from behaves as they rely on."""

import pytest

from tests.cluster.api import Key, Refused, key_of
from tests.cluster.control_plane import ControlPlane
from tests.parity.examples import FRONT, IDLE
from tests.parity.objects import port, service

pytestmark = [pytest.mark.root, pytest.mark.parity]


def test_what_was_put_is_answered_with_defaults_and_status(control_plane: ControlPlane) -> None:
    (answer,) = control_plane.api.put([FRONT])
    assert answer["spec"]["externalTrafficPolicy"] == "Cluster"
    assert [entry["ip"] for entry in answer["status"]["loadBalancer"]["ingress"]] == ["198.51.100.20", "198.51.100.21"]
    (answer,) = control_plane.api.put([FRONT | {"status": {}}])
    assert answer["status"] == {"loadBalancer": {}}


def test_only_the_servers_own_service_is_there_when_all_others_were_deleted(control_plane: ControlPlane) -> None:
    control_plane.api.put([FRONT, IDLE])
    control_plane.api.delete([key_of(FRONT), key_of(IDLE)])
    assert [key_of(tree) for tree in control_plane.api.list_of("Service")] == [Key("Service", "default", "kubernetes")]


def test_an_object_that_is_refused_says_why_and_does_not_keep_others_from_being_written(
    control_plane: ControlPlane,
) -> None:
    outside = service("shop/outside", "192.0.2.1", port(80))
    with pytest.raises(Refused, match="does not match the current range"):
        control_plane.api.put([outside, IDLE])
    assert key_of(IDLE) in [key_of(tree) for tree in control_plane.api.list_of("Service")]
