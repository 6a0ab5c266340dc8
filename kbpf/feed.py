"""Where objects come from and where Events go: manifests and the log, or an API server for both.

Made by `server`, which starts and stops what it is given.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kbpf.clock import Clock
from kbpf.composition import Background
from kbpf.config import Config
from kbpf.model.detector import DetectLocalMode
from kbpf.observe.events import Events, LogEvents
from kbpf.source.interface import Source

log = logging.getLogger(__name__)


class Feed(NamedTuple):
    """`background` carries the events; `silences` are the seconds since the source last heard of each resource."""

    source: Source
    events: Events
    background: tuple[Background, ...] = ()
    silences: Callable[[], Mapping[str, float]] = dict


def make_feed(config: Config, clock: Clock, asked: Callable[[str, str, int | None, float], None]) -> Feed:
    """`asked` is told of each request to the API server: method, host, status, seconds.

    Raises UsageError when there is no way to the API server, before anything of this node is touched.
    """
    # Either way is imported only when it is taken.
    if config.manifests:
        from kbpf.source.watch import ManifestSource

        return Feed(ManifestSource(config.manifests, config.node_name), LogEvents())
    from kbpf.event_writer import EventWriter
    from kbpf.source.api.access import Access
    from kbpf.source.api.http import HttpTransport
    from kbpf.source.api.plain import is_own_service
    from kbpf.source.api.source import ApiSource

    access = Access(config.kubeconfig, config.master, clock)
    url = access.read().url
    if is_own_service(url):
        way = "the ClusterIP of its Service, which something must serve already; --master names the API server itself"
        log.info(f"reaching the API server at {url}: {way}")
    transport = HttpTransport(access, asked=asked)
    needs_pod_ranges = config.detect_local_mode is DetectLocalMode.NODE_CIDR
    source = ApiSource(transport, url, config.node_name, clock, needs_pod_ranges=needs_pod_ranges)
    writer = EventWriter(transport.write, config.node_name, clock)
    return Feed(source, writer, (writer,), source.silences)
