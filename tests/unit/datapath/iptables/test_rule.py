"""A rule's meaning does not depend on who spelled it."""

import pytest

from kbpf.datapath.iptables.rule import Rule, parse_rule

SAME = [
    (
        '-A C -m comment --comment "a b" -m tcp -p tcp -d 10.96.12.34 --dport 80 ! -s 10.244.0.0/16 -j X',
        '-A C ! -s 10.244.0.0/16 -d 10.96.12.34/32 -p tcp -m comment --comment "a b" -m tcp --dport 80 -j X',
    ),
    ("-A C -m comment --comment a/b -j X", '-A C -m comment --comment "a/b" -j X'),
    ("-A C -j MARK --or-mark 0x00004000", "-A C -j MARK --set-xmark 0x4000/0x4000"),
    ("-A C -j MARK --xor-mark 0x00004000", "-A C -j MARK --set-xmark 0x4000/0x0"),
    ("-A C -m mark ! --mark 0x00004000/0x00004000 -j RETURN", "-A C -m mark ! --mark 0x4000/0x4000 -j RETURN"),
    (
        "-A C -m statistic --mode random --probability 0.3333333333 -j X",
        "-A C -m statistic --mode random --probability 0.33333333349 -j X",
    ),
    (
        "-A C -m recent --name C --rcheck --seconds 9 --reap -j X",
        "-A C -m recent --rcheck --seconds 9 --reap --name C --mask 255.255.255.255 --rsource -j X",
    ),
    (
        "-A C -m tcp -p tcp --dport 1 -j REJECT",
        "-A C -p 6 -m tcp --dport 1 -j REJECT --reject-with icmp-port-unreachable",
    ),
    ("-A C -m conntrack ! --ctstate RELATED,DNAT -j X", "-A C -m conntrack ! --ctstate DNAT,RELATED -j X"),
    (
        "-A C -m udp -p udp -j DNAT --to-destination [fd00:0::1]:53",
        "-A C -p udp -m udp -j DNAT --to-destination [fd00::1]:53",
    ),
    ("-A C -s fd00:0:0::1 -j X", "-A C -s fd00::1/128 -j X"),
    ("-A C -m addrtype --dst-type LOCAL ! -d ::1/128 -j X", "-A C ! -d ::1/128 -m addrtype --dst-type LOCAL -j X"),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME, ids=[ours for ours, _ in SAME])
def test_both_spellings_mean_the_same(ours: str, theirs: str):
    assert parse_rule(ours) == parse_rule(theirs)
    assert parse_rule(ours).is_understood


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-A C -s 10.0.0.1 -j X", "-A C -d 10.0.0.1 -j X"),
        ("-A C -s 10.0.0.1 -j X", "-A C ! -s 10.0.0.1 -j X"),
        ("-A C -s 10.0.0.1 -j X", "-A D -s 10.0.0.1 -j X"),
        ("-A C -s 10.0.0.1 -j X", "-A C -s 10.0.0.1 -j Y"),
        ("-A C -s 10.0.0.1 -j X", "-A C -s 10.0.0.1"),
        ("-A C -m comment --comment a -j X", "-A C -m comment --comment b -j X"),
        ("-A C -m mark --mark 0x1/0x1 -j X", "-A C -m mark --mark 0x1 -j X"),
    ],
)
def test_rules_that_differ_are_not_equal(one: str, other: str):
    assert parse_rule(one) != parse_rule(other)


def test_quotes_and_backslashes_of_foreign_comments_are_undone():
    rule = parse_rule(r'-A C -m comment --comment "say \"-j\" \\ twice" -j X')
    assert rule == Rule("C", {"--comment": r'say "-j" \ twice'}, "X")


@pytest.mark.parametrize(
    "line",
    [
        "-A C -p tcp -m multiport --dports 80,443 -j X",
        "-A C -m set --match-set blocked src -j DROP",
        "-A C -m socket -j X",
        "-A C ! -o eth0 -j X",
        "-A C -g X",
        '-A C -j LOG --log-prefix "x: "',
    ],
)
def test_a_foreign_match_is_kept_and_not_understood(line: str):
    rule = parse_rule(line)
    assert not rule.is_understood
    assert rule == parse_rule(line)


@pytest.mark.parametrize(
    "line",
    [
        "-A C -m mark --mark a -j X",
        "-A C -m tcp -p tcp -j DNAT --to-destination [fd00::1-fd00::9]:80",
        "-A C -s fd00::zz -j X",
        "-A C -j DNAT --to-destination 10.0.0.1-10.0.0.9",
        "-A C -d",
        "-A C !",
    ],
)
def test_a_form_that_our_rules_never_have_does_no_harm(line: str):
    assert parse_rule(line).chain == "C"
