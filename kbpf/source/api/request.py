"""The four questions to an API server, as values. `Reflector` chooses among them, a transport asks them."""

import msgspec

from kbpf.source.api.resource import Resource

PAGE_SIZE = 500
LIST_SILENCE_S = 30.0
"""So long may a list pause before it counts as broken."""
ANSWER_WITHIN_S = 60.0
"""The server gives up on a request after as long, whatever it may be doing."""
WATCH_MARGIN_S = 15.0
"""The server ends a watch in time; when the end itself does not come either, the connection is dead."""


class Request(msgspec.Struct, frozen=True):
    """`silence_s`: nothing for so long means that the connection is dead. Streams answer line by line."""

    resource: Resource
    parameters: tuple[tuple[str, str], ...]
    silence_s: float
    is_stream: bool = False

    @property
    def query(self) -> dict[str, str]:
        return dict(self.resource.selectors + self.parameters)


def page(resource: Resource, limit: int = PAGE_SIZE, continue_: str = "") -> Request:
    """A list, `limit` objects at a time (0: all). Without a resource version it shows the newest state there is."""
    parameters = (("limit", str(limit) if limit else ""), ("continue", continue_))
    return Request(resource, tuple(each for each in parameters if each[1]), LIST_SILENCE_S)


def streaming_list(resource: Resource, timeout_s: int) -> Request:
    """A watch that begins with everything there is: no page has to be built in memory, on either side."""
    parameters = (
        ("watch", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(timeout_s)),
    )
    return Request(resource, parameters, LIST_SILENCE_S, is_stream=True)


def watch(resource: Resource, version: str, timeout_s: int) -> Request:
    """What changed since `version`. The server ends the watch after `timeout_s`."""
    parameters = (
        ("watch", "true"),
        ("resourceVersion", version),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(timeout_s)),
    )
    return Request(resource, parameters, timeout_s + WATCH_MARGIN_S, is_stream=True)
