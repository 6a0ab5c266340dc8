"""kbpf does not start beside a kube-proxy that runs, unless it must; what is left over is said."""

import pytest

from kbpf.config import Config, ListenAddress
from kbpf.errors import NodeOwnedElsewhere
from kbpf.host.other_proxies import Sighting
from kbpf.ownership import claim_node
from tests.logs import capture_logs

SEEN = [Sighting("kube-proxy", "127.0.0.1:10249/proxyMode answers iptables"), Sighting("kube-proxy", "process 10")]


def test_a_free_node_is_claimed_without_a_word():
    with capture_logs() as logs:
        claim_node(Config(), force=False, running=lambda _: [], left=list)
    assert logs == []


def test_a_live_kube_proxy_ends_the_start_with_its_evidence_and_what_to_do():
    with pytest.raises(NodeOwnedElsewhere) as refused:
        claim_node(Config(), force=False, running=lambda _: SEEN, left=list)
    assert refused.value.exit_code == 4
    assert str(refused.value) == (
        "kube-proxy runs on this node (127.0.0.1:10249/proxyMode answers iptables; process 10): "
        "stop it first, or start with --force to fight over its rules"
    )


def test_force_starts_all_the_same_and_says_beside_whom():
    with capture_logs() as logs:
        claim_node(Config(), force=True, running=lambda _: SEEN, left=lambda: ["something is left"])
    assert [entry["log_level"] for entry in logs] == ["warning", "warning"]
    assert "process 10" in logs[0]["event"]
    assert logs[1]["event"] == "something is left"


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        (None, []),
        (ListenAddress("0.0.0.0", 10250), [("127.0.0.1", 10250)]),
        (ListenAddress("::", 10250), [("::1", 10250)]),
        (ListenAddress("192.168.60.11", 10249), [("192.168.60.11", 10249)]),
    ],
)
def test_kube_proxy_is_asked_at_its_own_address_and_at_the_one_we_were_given(address, asked):
    questions: list[tuple[str, int]] = []

    def nobody(where):
        questions.extend(where)
        return []

    claim_node(Config(metrics_address=address), force=False, running=nobody, left=list)
    assert questions == [("127.0.0.1", 10249), *asked]
