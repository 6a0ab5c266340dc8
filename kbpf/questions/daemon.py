"""What the daemon of this node says of itself over HTTP: the one thing that the kernel does not hold.

No daemon, or one that listens elsewhere, is no error: the kernel goes on without it, and so do the commands that ask.
"""

import http.client

import msgspec

from kbpf.config import ListenAddress

TIMEOUT_S = 2.0
LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared with)


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """`last_sync` is in seconds since the epoch."""

    datapath: str = ""
    reason: str = ""
    fallback_reason: str = ""
    last_sync: float | None = None
    sentence: str = ""
    warnings: tuple[str, ...] = ()


def ask(address: ListenAddress | None) -> Answer | None:
    """From /status on the metrics address. None: nobody answers there, or not kbpf."""
    if address is None:
        return None
    connection = http.client.HTTPConnection(LOOPBACKS.get(address.host, address.host), address.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        body = response.read()
        return msgspec.json.decode(body, type=Answer) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return None
    finally:
        connection.close()
