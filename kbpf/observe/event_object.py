"""A Notice as the object that the API takes: events.k8s.io/v1, the fields that kube-proxy sets. Pure."""

from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from kbpf.observe.notices import Notice, Subject

REPORTER = "kbpf"
MAX_INSTANCE = 128
API_VERSIONS = {"EndpointSlice": "discovery.k8s.io/v1"}


def collection(notice: Notice) -> str:
    """The path below which its Event is made."""
    return f"/apis/events.k8s.io/v1/namespaces/{quote(_namespace(notice.subject), safe='')}/events"


def event_name(notice: Notice, at: float) -> str:
    return f"{notice.subject.name[:200]}.{int(at * 1e9):x}"


def encode_event(notice: Notice, node_name: str, at: float) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": _namespace(notice.subject), "name": event_name(notice, at)},
            "eventTime": _micro_time(at),
            "reportingController": REPORTER,
            "reportingInstance": f"{REPORTER}-{node_name}"[:MAX_INSTANCE],
            "type": "Warning" if notice.is_warning else "Normal",
            "reason": notice.reason,
            "action": notice.action,
            "note": notice.note,
            "regarding": _regarding(notice.subject),
        }
    )


def encode_series(count: int, at: float) -> bytes:
    """What changes in an Event when the same is said again."""
    return msgspec.json.encode({"series": {"count": count, "lastObservedTime": _micro_time(at)}})


def _namespace(subject: Subject) -> str:
    """Events on a Node live in `default`."""
    return subject.namespace or "default"


def _regarding(subject: Subject) -> dict[str, str]:
    """The UID is the name, as with kubelet and kube-proxy: `kubectl describe node` looks for it."""
    reference = {
        "apiVersion": API_VERSIONS.get(subject.kind, "v1"),
        "kind": subject.kind,
        "name": subject.name,
        "uid": f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name,
    }
    return reference | ({"namespace": subject.namespace} if subject.namespace else {})


def _micro_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
