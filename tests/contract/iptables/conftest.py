"""Every test here runs on four hosts: fake and real, nft and legacy."""

import pytest

from kbpf.datapath.iptables.commands import Flavour
from kbpf.datapath.iptables.fake import FakeIptables
from tests.contract.iptables.hosts import Host, inside

FAKES = ["fake-nft", "fake-legacy"]
KERNELS = [pytest.param(f"kernel-{flavour}", marks=pytest.mark.root) for flavour in ("nft", "legacy")]


@pytest.fixture(params=[*FAKES, *KERNELS])
def host(request: pytest.FixtureRequest) -> Host:
    kind, _, flavour = request.param.partition("-")
    if kind == "fake":
        return Host(FakeIptables(), Flavour(flavour))
    return Host(inside(request.getfixturevalue("namespace")), Flavour(flavour))
