"""Worlds written by hand: every shape of rules once, and endpoints that come and go."""

import pytest

from tests.parity.comparison import Comparison
from tests.parity.examples import EXAMPLES

pytestmark = [pytest.mark.root, pytest.mark.parity]


@pytest.mark.parametrize("name", EXAMPLES)
def test_kbpf_writes_what_kube_proxy_writes(comparison: Comparison, name: str) -> None:
    for objects in EXAMPLES[name]:
        comparison.show(objects)
        comparison.check()
