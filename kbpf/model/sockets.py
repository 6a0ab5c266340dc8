"""A connected UDP socket whose destination was translated when it connected: who it talks to, and where it lives."""

from typing import NamedTuple


class ConnectedSocket(NamedTuple):
    """Addresses are in network order, four or sixteen bytes.

    `destination` is whom the application asked for; `reply_source` is the backend that it is connected to. The cookies
    are the kernel's numbers, never given twice.
    """

    destination: bytes
    port: int
    reply_source: bytes
    reply_port: int
    netns_cookie: int
    cookie: int
