"""Dumps as the kernel sends them: in several datagrams, refused, broken off, interrupted."""

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from kbpf.host.netlink import HEADER, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, Dump, attribute, attributes, nested

ENTRY = 256
DONE = (NLMSG_DONE, struct.pack("=i", 0))


def message(kind: int, payload: bytes, flags: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(payload), kind, flags, 1, 0) + payload + bytes(-len(payload) % 4)


class Kernel:
    def __init__(self) -> None:
        self.other_end, self._socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def sends(self, *messages: tuple[int, bytes] | tuple[int, bytes, int]) -> None:
        self._socket.send(b"".join(message(*each) for each in messages))

    def close(self) -> None:
        self.other_end.close()
        self._socket.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


def payloads(dump: Dump) -> list[bytes]:
    return [buffer[start:end] for buffer, start, end in dump]


def test_a_dump_goes_on_over_datagrams_until_it_is_done(kernel: Kernel):
    kernel.sends((ENTRY, b"one"), (ENTRY, b"three"))
    kernel.sends((ENTRY, b"four"), DONE)
    dump = Dump(kernel.other_end)
    assert payloads(dump) == [b"one", b"three", b"four"]
    assert not dump.is_interrupted


def test_an_interrupted_dump_says_so_and_keeps_what_came(kernel: Kernel):
    kernel.sends((ENTRY, b"one"), (ENTRY, b"two", NLM_F_DUMP_INTR), DONE)
    dump = Dump(kernel.other_end)
    assert payloads(dump) == [b"one", b"two"]
    assert dump.is_interrupted


@pytest.mark.parametrize("kind", [NLMSG_ERROR, NLMSG_DONE])
def test_a_dump_that_fails_raises_the_kernel_s_reason(kernel: Kernel, kind: int):
    kernel.sends((ENTRY, b"one"), (kind, struct.pack("=i", -errno.EPERM)))
    with pytest.raises(PermissionError, match="Operation not permitted"):
        payloads(Dump(kernel.other_end))


def test_attributes_are_read_back_without_their_padding_and_flags():
    written = nested(7, attribute(1, b"abc")) + attribute(2, b"")
    assert [(kind, written[start:end]) for kind, start, end in attributes(written, 0, len(written))] == [
        (7, attribute(1, b"abc")),
        (2, b""),
    ]


def test_attributes_of_no_length_end_the_walk():
    assert list(attributes(bytes(12), 0, 12)) == []
