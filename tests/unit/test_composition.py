"""How the datapaths are put together: what was probed is what runs."""

from pathlib import Path

import pytest

from kbpf.clock import FakeClock
from kbpf.composition import choose_datapath, make_datapath
from kbpf.config import Config, DatapathWish
from kbpf.datapath.iptables.backend import IptablesDatapath
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.table import ServiceTable


def test_a_start_with_iptables_looks_for_the_programs_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fake = FakeIptables()

    def make_iptables(config: Config, own: None, clock: FakeClock) -> IptablesDatapath:
        return IptablesDatapath(IptablesSettings(), clock, run=fake)

    monkeypatch.setattr("kbpf.composition.make_iptables", make_iptables)
    config = Config(datapath=DatapathWish.IPTABLES, bpffs_root=tmp_path / "none", localhost_node_ports=False)
    choice = choose_datapath(config, FakeClock())
    report = make_datapath(choice, config, None, FakeClock()).sync(ServiceTable(), frozenset(), full=True)
    assert report.datapath == "iptables"
    assert fake.calls.count(("iptables-nft", "--version")) == 1
