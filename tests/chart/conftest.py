"""One real API server for the tests that give it the chart."""

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        yield running
    finally:
        running.stop()
