"""Connections counted by rules find their Service, with comments and without."""

from kbpf.datapath.iptables.counted import counted
from kbpf.model.address import Address
from kbpf.model.table import Backend

SVC, EXT, SEP = "KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-EXT-AAAAAAAAAAAAAAAA", "KUBE-SEP-AAAAAAAAAAAAAAAA"
A = Backend(Address("10.42.1.5"), 8080)


def rule(packets: int, text: str) -> str:
    return f"[{packets}:{packets * 60}] {text}\n"


def test_a_backends_rule_names_its_service():
    saved = "*nat\n" + rule(
        7, f'-A {SEP} -p tcp -m comment --comment "shop/web:http" -j DNAT --to-destination {A[0]}:8080'
    )
    assert list(counted(saved)) == [("shop/web:http", A, 7)]


def test_without_a_comment_the_chains_that_lead_there_tell_it():
    saved = (
        rule(9, f'-A KUBE-NODEPORTS -p tcp -m comment --comment "shop/web:http" -m tcp --dport 30080 -j {EXT}')
        + rule(9, f"-A {EXT} -j {SVC}")
        + rule(9, f"-A {SVC} -j {SEP}")
        + rule(9, f"-A {SEP} -p tcp -m tcp -j DNAT --to-destination {A[0]}:8080")
    )
    assert list(counted(saved)) == [("shop/web:http", A, 9)]


def test_rules_of_others_and_other_rules_count_nothing():
    saved = rule(5, "-A DOCKER -p tcp -j DNAT --to-destination 172.17.0.2:80") + rule(5, f"-A {SEP} -j KUBE-MARK-MASQ")
    assert list(counted(saved)) == []
