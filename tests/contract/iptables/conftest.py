"""Every test here runs on four hosts: fake and real, nft and legacy."""

import pytest

from kbpf.datapath.iptables.commands import Flavour
from tests.contract.iptables.hosts import Host, fake_host, real_host

FAKES = ["fake-nft", "fake-legacy"]
KERNELS = [pytest.param(f"kernel-{flavour}", marks=pytest.mark.root) for flavour in ("nft", "legacy")]


@pytest.fixture(params=[*FAKES, *KERNELS])
def host(request: pytest.FixtureRequest) -> Host:
    kind, _, flavour = request.param.partition("-")
    if kind == "fake":
        return fake_host(Flavour(flavour))
    return real_host(request.getfixturevalue("namespace"), Flavour(flavour))
