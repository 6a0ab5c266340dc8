"""One real API server for the tests that give it the chart."""

from tests.cluster.conftest import control_plane

__all__ = ["control_plane"]
