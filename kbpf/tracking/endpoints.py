"""Merging the slices of one Service into endpoint lists per family, port name and protocol. Pure.

Service and slices meet by port name and protocol; numbers are never compared.
"""

from collections.abc import Iterable

from kbpf.model.address import host_port
from kbpf.model.endpoint import Endpoint, EndpointsKey
from kbpf.model.names import SliceName
from kbpf.tracking.slice_record import SliceRecord


def merge_slices(slices: Iterable[tuple[SliceName, SliceRecord]]) -> dict[EndpointsKey, tuple[Endpoint, ...]]:
    """Endpoint lists, each sorted by "ip:port" as text, each address and port in it once.

    An endpoint may stand in several slices while the controller repacks them. kube-proxy lets one that is not
    terminating beat one that is, and leaves the rest to map order; the order here agrees and is total, so that any
    order of events gives the same table.
    """
    merged: dict[EndpointsKey, dict[str, Endpoint]] = {}
    for _, record in sorted(slices, key=lambda named: named[0], reverse=True):
        for name, protocol, port in record.ports:
            by_text = merged.setdefault(EndpointsKey(record.family, name, protocol), {})
            for endpoint in record.endpoints:
                text = host_port(endpoint.address, port)
                rival = by_text.get(text)
                if rival is None or _preference(endpoint) >= _preference(rival):
                    by_text[text] = _with_port(endpoint, port)
    return {key: tuple(by_text[text] for text in sorted(by_text)) for key, by_text in merged.items()}


def _preference(endpoint: Endpoint) -> tuple[bool, bool, bool, bool]:
    """Greater wins; slices are visited from the highest name down, so that equals fall to the lowest slice name."""
    return not endpoint.terminating, endpoint.ready, endpoint.serving, endpoint.is_local


def _with_port(endpoint: Endpoint, port: int) -> Endpoint:
    return Endpoint(
        endpoint.address,
        port,
        endpoint.is_local,
        endpoint.ready,
        endpoint.serving,
        endpoint.terminating,
        endpoint.zone_hints,
        endpoint.node_hints,
    )
