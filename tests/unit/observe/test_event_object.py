"""The Event of a notice: what `kubectl describe` looks for, and what the API refuses otherwise."""

import json

from kbpf.observe import notices
from kbpf.observe.event_object import collection, encode_event, encode_series, event_name
from kbpf.observe.notices import Notice, Subject
from tests.builders import service_name

AT = 1_700_000_000.25


def test_an_event_on_a_node_stands_in_the_default_namespace_with_the_name_as_its_uid():
    notice = notices.starting("n1")
    event = json.loads(encode_event(notice, "n1", AT))
    assert collection(notice) == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Starting", "StartKubeProxy")
    assert (event["reportingController"], event["reportingInstance"]) == ("kbpf", "kbpf-n1")
    assert event["eventTime"] == "2023-11-14T22:13:20.250000Z"


def test_an_event_on_a_service_stands_in_its_namespace():
    notice = notices.health_port_taken("n1", service_name("edge"), 32100, "taken")
    event = json.loads(encode_event(notice, "n1", AT))
    assert collection(notice).endswith("/namespaces/shop/events")
    assert event["regarding"]["namespace"] == event["metadata"]["namespace"] == "shop"
    assert event["type"] == "Warning"


def test_names_differ_by_the_moment_and_are_short_enough():
    notice = Notice(Subject("Service", "x" * 253, "shop"), "R", "A")
    assert event_name(notice, AT) != event_name(notice, AT + 0.001)
    assert len(event_name(notice, AT)) <= 253
    assert len(json.loads(encode_event(notice, "n" * 200, AT))["reportingInstance"]) == 128


def test_a_series_says_how_often_and_when_last():
    assert json.loads(encode_series(7, AT)) == {
        "series": {"count": 7, "lastObservedTime": "2023-11-14T22:13:20.250000Z"}
    }
