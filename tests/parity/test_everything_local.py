"""A range of pods that holds every address: the one setting with which kbpf's rules are meant to differ.

With legacy rules, since iptables-nft refuses what kube-proxy writes for it, and with that all of its rules.
"""

import pytest

from tests.parity.comparison import Comparison
from tests.parity.examples import EXAMPLES
from tests.parity.pair import Setting
from tests.parity.wanted import load

pytestmark = [pytest.mark.root, pytest.mark.parity]

EVERYTHING_LOCAL = Setting("everything local", {"cluster-cidr": "0.0.0.0/0,::/0"}, backend="legacy")
SETTINGS = (EVERYTHING_LOCAL,)
# Where rules differ, each comparison waits for them to become equal, so these must do.
WORLDS = ("cluster-ip", "source-ranges", "external-policy-local", "internal-policy-local-draining")
WANTED = load()[EVERYTHING_LOCAL.name]


def test_only_rules_that_match_nothing_differ(comparison: Comparison) -> None:
    found = []
    for name in WORLDS:
        comparison.show(EXAMPLES[name][0])
        found += comparison.differences()
    assert WANTED.surprises(found) == []
    assert WANTED.missing(found) == []
