"""What the kernel's table is asked, and when it is not asked at all."""

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from kbpf.errors import HostError
from kbpf.host import conntrack
from kbpf.host.conntrack import CTA_ID, CTA_ZONE, NETFILTER_HEADER, KernelConntrack, UdpEntry, failed_inserts
from kbpf.host.netlink import HEADER, Payload, attribute
from kbpf.model.address import Family
from tests.conntrack_entries import TrackedFlow, request

FIRST = TrackedFlow("10.42.1.9", 40001, "10.96.0.10", 53, "10.42.2.5", 5353)
SECOND = FIRST._replace(client_port=40002, reply_source="10.42.2.6")


class ScriptedDump:
    def __init__(self, flows: Sequence[TrackedFlow], is_interrupted: bool) -> None:
        self._flows = flows
        self.is_interrupted = is_interrupted

    def __iter__(self) -> Iterator[Payload]:
        for flow in self._flows:
            message = request(flow)
            yield Payload(message, HEADER.size, len(message))


class ScriptedNetlink:
    """Answers each dump from `dumps`, every request with `errors`; `failure` is an error number of opening it."""

    def __init__(self, *dumps: ScriptedDump, errors: Sequence[int] = (), failure: int = 0) -> None:
        self.dumps = list(dumps)
        self.errors = errors
        self.failure = failure
        self.sent: list[bytes] = []

    def __call__(self, protocol: int) -> Self:
        if self.failure:
            raise OSError(self.failure, os.strerror(self.failure))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def dump(self, message_type: int, body: bytes) -> ScriptedDump:
        return self.dumps.pop(0)

    def send(self, message_type: int, requests: Sequence[bytes]) -> list[int]:
        self.sent += requests
        return list(self.errors)


@pytest.fixture(autouse=True)
def entry_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "nf_conntrack_count"
    path.write_text("2\n")
    monkeypatch.setattr(conntrack, "ENTRY_COUNT", path)
    return path


def use(monkeypatch: pytest.MonkeyPatch, netlink: ScriptedNetlink) -> None:
    monkeypatch.setattr(conntrack, "NetlinkSocket", netlink)


def backends(entries: Iterator[UdpEntry]) -> list[bytes]:
    return [entry.reply_source for entry in entries]


def test_an_interrupted_dump_is_run_once_more(monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, ScriptedNetlink(ScriptedDump([FIRST], True), ScriptedDump([FIRST, SECOND], False)))
    assert backends(KernelConntrack().list_udp(Family.IPV4)) == [
        bytes([10, 42, 2, 5]),
        bytes([10, 42, 2, 5]),
        bytes([10, 42, 2, 6]),
    ]


def test_of_a_dump_that_is_interrupted_twice_what_came_is_used(monkeypatch: pytest.MonkeyPatch):
    netlink = ScriptedNetlink(ScriptedDump([FIRST], True), ScriptedDump([SECOND], True))
    use(monkeypatch, netlink)
    assert len(backends(KernelConntrack().list_udp(Family.IPV4))) == 2
    assert netlink.dumps == []


@pytest.mark.parametrize("count", [None, "0\n"])
def test_the_kernel_is_not_asked_where_nothing_is_tracked(
    monkeypatch: pytest.MonkeyPatch, entry_count: Path, count: str | None
):
    entry_count.unlink() if count is None else entry_count.write_text(count)
    use(monkeypatch, ScriptedNetlink(failure=errno.EPERM))
    assert backends(KernelConntrack().list_udp(Family.IPV4)) == []


def test_missing_rights_are_one_clear_error(monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, ScriptedNetlink(failure=errno.EPERM))
    with pytest.raises(HostError, match="cannot list conntrack entries: Operation not permitted"):
        backends(KernelConntrack().list_udp(Family.IPV4))


def entry(*, attributes: bytes) -> UdpEntry:
    return UdpEntry(bytes([10, 96, 0, 10]), 53, bytes([10, 42, 2, 5]), 5353, attributes)


def attributes_of(flow: TrackedFlow) -> bytes:
    return request(flow)[HEADER.size + NETFILTER_HEADER.size :]


@pytest.mark.parametrize(
    ("errors", "deleted"),
    [((), 1), ((errno.ENOENT,), 0), ((errno.EBUSY,), 0)],
    ids=["there", "ended meanwhile", "held by hardware"],
)
def test_only_what_was_deleted_is_counted(monkeypatch: pytest.MonkeyPatch, errors: tuple[int, ...], deleted: int):
    use(monkeypatch, ScriptedNetlink(errors=errors))
    assert KernelConntrack().delete([entry(attributes=attributes_of(FIRST))]) == deleted


def test_a_refused_deletion_is_one_clear_error(monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, ScriptedNetlink(errors=[errno.ENOENT, errno.EPERM]))
    with pytest.raises(HostError, match="cannot delete conntrack entries: Operation not permitted"):
        KernelConntrack().delete([entry(attributes=attributes_of(FIRST))] * 3)


def test_a_deletion_never_goes_out_without_the_tuple_for_that_would_empty_the_table(monkeypatch: pytest.MonkeyPatch):
    netlink = ScriptedNetlink()
    use(monkeypatch, netlink)
    with pytest.raises(KeyError):
        KernelConntrack().delete([entry(attributes=b"")])
    assert netlink.sent == []


def test_a_deletion_names_zone_and_id_so_that_no_other_entry_is_meant(monkeypatch: pytest.MonkeyPatch):
    netlink = ScriptedNetlink()
    use(monkeypatch, netlink)
    zone, identity = attribute(CTA_ZONE, b"\x00\x07"), attribute(CTA_ID, b"abcd")
    original = attributes_of(FIRST)[:52]
    status, reply = attribute(3, bytes(4)), attributes_of(FIRST)[52:104]
    KernelConntrack().delete([entry(attributes=original + reply + zone + status + identity)])
    assert netlink.sent == [NETFILTER_HEADER.pack(socket.AF_INET, 0, 0) + original + zone + identity]


def test_entries_that_could_not_be_made_are_counted_over_all_processors():
    head = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop"
    lines = [f"{7:08x}  " + " ".join([f"{0:08x}"] * 8) + f" {failures:08x} {1:08x}" for failures in (3, 0, 0x10)]
    assert failed_inserts("\n".join([head, *lines, ""])) == 19


@pytest.mark.parametrize("statistics", ["", "entries found\n00000001 00000002\n"])
def test_a_kernel_that_counts_otherwise_counts_none(statistics: str):
    assert failed_inserts(statistics) == 0
