"""The choice between nft and legacy, and of the families that work."""

from collections.abc import Sequence

import pytest

from kbpf.datapath.iptables.commands import Completed, Flavour
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.host import HostTools, choose_tools
from kbpf.errors import DatapathUnavailable
from kbpf.model.address import Family


def restore(fake: FakeIptables, flavour: Flavour, text: str, stem: str = "iptables") -> None:
    argv = [f"{stem}-{flavour.value}-restore", "-w", "5", "--noflush", "--counters"]
    assert fake(argv, text, 1).status == 0


def rules(count: int) -> str:
    return "*filter\n" + "-A INPUT -j ACCEPT\n" * count + "COMMIT\n"


KUBELET = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"


def chosen(fake: FakeIptables, wish: Flavour | None = None) -> Flavour:
    flavours = {tool.flavour for tool in choose(fake, wish).tools.values()}
    assert len(flavours) == 1
    return flavours.pop()


def choose(fake: FakeIptables, wish: Flavour | None = None) -> HostTools:
    return choose_tools(fake, wish, Family)


def test_an_empty_host_gets_nft():
    assert chosen(FakeIptables()) is Flavour.NFT


@pytest.mark.parametrize("flavour", Flavour)
def test_a_wish_is_followed_whatever_the_evidence(flavour: Flavour):
    fake = FakeIptables()
    restore(fake, Flavour.NFT, rules(5))
    assert chosen(fake, flavour) is flavour


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("stem", ["iptables", "ip6tables"])
def test_kubelets_chains_decide_even_against_the_number_of_rules(flavour: Flavour, stem: str):
    fake = FakeIptables()
    other = Flavour.LEGACY if flavour is Flavour.NFT else Flavour.NFT
    restore(fake, flavour, KUBELET, stem)
    restore(fake, other, rules(50))
    assert chosen(fake) is flavour


def test_without_kubelet_the_flavour_with_more_rules_is_used_and_the_doubt_is_told():
    fake = FakeIptables()
    restore(fake, Flavour.NFT, rules(2))
    restore(fake, Flavour.LEGACY, rules(3))
    assert chosen(fake) is Flavour.LEGACY
    assert choose(fake).warnings == (
        "2 rules in iptables-nft and 3 in iptables-legacy: both take effect; using legacy",
    )


def test_a_host_with_one_flavour_uses_that():
    missing = [f"{stem}{suffix}" for stem in ("iptables", "ip6tables") for suffix in ("-nft", "")]
    assert chosen(FakeIptables(missing=missing)) is Flavour.LEGACY


@pytest.mark.parametrize("family", Family)
def test_a_family_without_nat_is_left_out_with_one_warning(family: Family):
    host = choose(FakeIptables(no_nat=family.value))
    assert family not in host.tools
    assert len(host.tools) == 1
    (warning,) = host.warnings
    assert warning.startswith(f"{family.value} is left out: ")
    assert "Table does not exist" in warning


def test_a_family_whose_programs_are_missing_is_left_out():
    host = choose(FakeIptables(missing=["ip6tables", "ip6tables-nft", "ip6tables-legacy"]))
    assert list(host.tools) == [Family.IPV4]
    assert host.warnings == ("IPv6 is left out: ip6tables: no such program; it comes with the package iptables",)


def test_a_flavour_that_one_family_lacks_is_named():
    host = choose_tools(FakeIptables(missing=["ip6tables-legacy"]), Flavour.LEGACY, Family)
    assert host.warnings == ("IPv6 is left out: no iptables of flavour legacy",)


def test_no_family_at_all_is_an_error_with_every_reason():
    def run(argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        return Completed(127, "", "")

    with pytest.raises(DatapathUnavailable, match=r"IPv4 is left out.*IPv6 is left out"):
        choose_tools(run, None, Family)
