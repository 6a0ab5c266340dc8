"""A netlink socket for what the host modules need: whole dumps, and batches of requests that nobody waits for.

Own code instead of pyroute2, because its decoding costs 66 µs for a conntrack entry where unpacking two tuples costs 3,
and its import 24 MB and a quarter of a second in every daemon. Used by `conntrack`, `addresses`, `devices` and
`clsact`, which know what the payloads mean. The socket belongs to the network namespace of the thread that opens it.
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
ATTRIBUTE = struct.Struct("=HH")  # length, type
ERROR = struct.Struct("=i")

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_DUMP_INTR, NLM_F_DUMP = 0x1, 0x10, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
NLA_F_NESTED, NLA_TYPE_MASK = 0x8000, 0x3FFF

SOL_NETLINK, NETLINK_CAP_ACK = 270, 10
RECEIVE_BYTES = 65536  # the kernel fills at most 32 KB of a dump into one datagram
TIMEOUT = struct.pack("@ll", 10, 0)  # netlink answers at once; nothing may hold the control thread for ever
BATCH = 200  # requests in one datagram, so that their errors fit into the default receive buffer


class Payload(NamedTuple):
    """One message of a dump: what follows its netlink header is `buffer[start:end]`."""

    buffer: bytes
    start: int
    end: int


class NetlinkSocket:
    """Raises OSError for whatever the kernel refuses."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEOUT)
        # Without it every error carries a copy of the request that caused it.
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def dump(self, message_type: int, request: bytes) -> "Dump":
        """Ask for all that the kernel has of one type."""
        self._socket.send(_message(message_type, NLM_F_REQUEST | NLM_F_DUMP, request))
        return Dump(self._socket)

    def change(self, message_type: int, request: bytes, flags: int = 0) -> None:
        """One request that must succeed."""
        self._socket.send(_message(message_type, NLM_F_REQUEST | flags, request))
        for number in self._pending_errors():
            raise OSError(number, os.strerror(number))

    def send(self, message_type: int, requests: Sequence[bytes]) -> list[int]:
        """Send without asking for acknowledgements; returns the error numbers of the requests that were refused."""
        errors: list[int] = []
        for first in range(0, len(requests), BATCH):
            batch = requests[first : first + BATCH]
            self._socket.send(b"".join(_message(message_type, NLM_F_REQUEST, request) for request in batch))
            errors += self._pending_errors()
        return errors

    def _pending_errors(self) -> Iterator[int]:
        """The kernel works within `send`: when that returns, every error is already in the socket."""
        while True:
            try:
                buffer = self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            for kind, _, start, _ in _messages(buffer):
                if kind == NLMSG_ERROR:
                    yield -ERROR.unpack_from(buffer, start)[0]


class Dump:
    """Iterate it once, to the end; then `is_interrupted` says whether the kernel's table changed under the dump."""

    def __init__(self, source: socket.socket) -> None:
        self._socket = source
        self.is_interrupted = False

    def __iter__(self) -> Iterator[Payload]:
        while True:
            buffer = self._socket.recv(RECEIVE_BYTES)
            for kind, flags, start, end in _messages(buffer):
                if flags & NLM_F_DUMP_INTR:
                    self.is_interrupted = True
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    _raise_error(buffer, start, end)
                    return
                yield Payload(buffer, start, end)


def attribute(kind: int, content: bytes) -> bytes:
    """One attribute, padded to a multiple of four."""
    length = ATTRIBUTE.size + len(content)
    return ATTRIBUTE.pack(length, kind) + content + bytes(-length % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def attributes(buffer: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(type, start, end) of the content of each attribute."""
    while start + ATTRIBUTE.size <= end:
        length, kind = ATTRIBUTE.unpack_from(buffer, start)
        if length < ATTRIBUTE.size:
            return
        yield kind & NLA_TYPE_MASK, start + ATTRIBUTE.size, start + length
        start += _aligned(length)


def _message(message_type: int, flags: int, request: bytes) -> bytes:
    length = HEADER.size + len(request)
    return HEADER.pack(length, message_type, flags, 1, 0) + request + bytes(-length % 4)


def _messages(buffer: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(type, flags, start, end) of the payload of each message."""
    start = 0
    while start < len(buffer):
        length, kind, flags, _, _ = HEADER.unpack_from(buffer, start)
        yield kind, flags, start + HEADER.size, start + length
        start += _aligned(length)


def _raise_error(buffer: bytes, start: int, end: int) -> None:
    """The end of a dump carries an error number, too."""
    code = -ERROR.unpack_from(buffer, start)[0] if end - start >= ERROR.size else 0
    if code:
        raise OSError(code, os.strerror(code))


def _aligned(length: int) -> int:
    return (length + 3) & ~3
