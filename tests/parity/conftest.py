"""The comparison that a module's tests share: one API server and the pairs of its settings, started once."""

from collections.abc import Iterator

import pytest

from tests.parity.comparison import Comparison
from tests.parity.pair import Setting

DEFAULT = (Setting("defaults"),)


@pytest.fixture(scope="module")
def comparison(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """With the settings that the module calls `SETTINGS`, or kube-proxy's defaults."""
    compared = Comparison(tmp_path_factory.mktemp("comparison"), getattr(request.module, "SETTINGS", DEFAULT))
    try:
        yield compared
    finally:
        compared.stop()
