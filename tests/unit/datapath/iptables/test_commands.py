"""The programs of a host: found by name, judged by their version, their failures put into words."""

import hashlib
import sys
import threading
import time

import pytest

from kbpf.datapath.iptables.commands import (
    STATUS_NOT_EXECUTABLE,
    STATUS_NOT_FOUND,
    STATUS_TIMEOUT,
    Completed,
    Flavour,
    Tool,
    find_tools,
    parse_version,
    run_process,
    with_context,
)
from kbpf.datapath.iptables.fake import FakeIptables
from kbpf.datapath.iptables.ruleset import ChainKey, Table
from kbpf.model.address import Family


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("iptables v1.8.9 (nf_tables)", (1, 8, 9)),
        ("iptables v1.8.7-imgmkr.1 (legacy)", (1, 8, 7)),
        ("ip6tables v1.6.2", (1, 6, 2)),
        ("iptables v1.10", (1, 10)),
        ("iptables", None),
        ("", None),
    ],
)
def test_versions_are_read_whatever_vendors_put_behind_them(text: str, version: tuple[int, ...] | None):
    assert parse_version(text) == version


def test_both_flavours_are_found_by_their_own_names():
    tools, refused = find_tools(FakeIptables(), Family.IPV6)
    assert {flavour: tool.name for flavour, tool in tools.items()} == {
        Flavour.NFT: "ip6tables-nft",
        Flavour.LEGACY: "ip6tables-legacy",
    }
    assert refused == ()


@pytest.mark.parametrize("default", Flavour)
def test_a_host_with_plain_names_only_is_asked_what_they_are(default: Flavour):
    tools, _ = find_tools(FakeIptables(default=default, missing=["iptables-nft", "iptables-legacy"]), Family.IPV4)
    assert {flavour: tool.name for flavour, tool in tools.items()} == {default: "iptables"}


def test_programs_that_are_too_old_are_refused_by_version():
    tools, refused = find_tools(FakeIptables(version="1.6.1"), Family.IPV4)
    assert tools == {}
    assert refused[0] == "iptables-nft is version 1.6.1; 1.6.2 or later is needed"


def test_a_program_that_tells_no_version_is_refused_with_its_own_words():
    def run(argv: object, stdin: str, timeout_s: float) -> Completed:
        return Completed(1, "", "Illegal instruction")

    tools, refused = find_tools(run, Family.IPV4)
    assert tools == {}
    assert "Illegal instruction" in refused[0]


def test_a_host_without_iptables_is_told_what_to_install():
    tools, refused = find_tools(FakeIptables(missing=["iptables-nft", "iptables-legacy", "iptables"]), Family.IPV4)
    assert tools == {}
    assert refused == ("iptables: no such program; it comes with the package iptables",)


@pytest.mark.parametrize(
    ("status", "lacks"),
    [(0, False), (1, True), (3, True), (4, False), (STATUS_TIMEOUT, False), (127, False), (-9, False)],
)
def test_a_program_that_fails_does_not_make_a_chain_gone(status: int, lacks: bool):
    def run(argv: object, stdin: str, timeout_s: float) -> Completed:
        return Completed(status, "", "")

    tool = Tool(Family.IPV4, Flavour.LEGACY, "iptables", (1, 8, 9), run)
    assert tool.lacks(ChainKey(Table.NAT, "KUBE-PROXY-CANARY")) is lacks


@pytest.mark.parametrize("words", ["iptables-restore: line 5 failed", "Error occurred at line: 5"])
def test_a_named_line_is_shown_with_three_neighbours_on_each_side(words: str):
    text = "".join(f"line{number} {'x' * 1000}\n" for number in range(1, 100))
    shown = with_context(words, text)
    assert [f"{number}: line{number} " in shown for number in range(1, 10)] == [False] + [True] * 7 + [False]
    assert len(shown) < 1500


@pytest.mark.parametrize("words", ["iptables-restore: line 900 failed", "something else", ""])
def test_words_without_a_line_of_the_input_stay_as_they_are(words: str):
    assert with_context(words, "one\ntwo\n") == words


def test_a_process_gets_its_input_and_gives_its_output():
    program = "import sys; print(sys.stdin.read().upper()); print('e', file=sys.stderr); sys.exit(3)"
    assert run_process([sys.executable, "-c", program], "abc", 10) == Completed(3, "ABC\n", "e\n")


def test_megabytes_of_input_arrive_whole_and_in_order():
    program = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    text = "".join(f"-A KUBE-SVC-{number:016} -j KUBE-SEP-{number:016}\n" for number in range(100_000))
    done = run_process([sys.executable, "-c", program], text, 30)
    assert done.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


def test_a_program_that_ends_before_it_has_read_its_input_is_its_status():
    program = "import sys; print('line 1 failed', file=sys.stderr); sys.exit(2)"
    assert run_process([sys.executable, "-c", program], "x" * 10_000_000, 30) == Completed(2, "", "line 1 failed\n")


@pytest.mark.parametrize("stdin", ["", "x" * 10_000_000], ids=["none", "megabytes"])
def test_a_program_that_hangs_is_killed_with_input_waiting_or_without(stdin: str):
    done = run_process([sys.executable, "-c", "import time; time.sleep(60)"], stdin, 0.1)
    assert done.status == STATUS_TIMEOUT
    assert "not finished" in done.stderr


def test_without_a_thread_to_feed_it_a_program_is_killed_and_that_is_a_status(monkeypatch: pytest.MonkeyPatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    started = time.monotonic()
    done = run_process([sys.executable, "-c", "import sys; sys.stdin.read()"], "rules", 60)
    assert (done.status, done.stderr) == (STATUS_NOT_EXECUTABLE, "can't start new thread")
    assert time.monotonic() - started < 30


def test_a_missing_program_is_a_status():
    assert run_process(["kbpf-no-such-program"], "", 1).status == STATUS_NOT_FOUND
