"""The last endpoints of the Service through which this node reaches the API server."""

import msgspec
import pytest

from kbpf.model.events import Event, ServiceChanged, SliceChanged
from kbpf.model.names import ServiceName, SliceName
from kbpf.model.objects import EndpointSlice, Service
from kbpf.source.api.lifeline import Lifeline
from tests.api_answers import slice_tree, tree

NAME = ServiceName("default", "kubernetes")


def service(*addresses: str) -> ServiceChanged:
    spec = {"clusterIP": addresses[0], "clusterIPs": list(addresses), "ports": [{"port": 443}]}
    return ServiceChanged(NAME, msgspec.convert(tree("kubernetes", namespace="default", spec=spec), Service))


def endpoints(*addresses: str, name: str = "kubernetes", of: str = "kubernetes", **conditions: bool) -> SliceChanged:
    content = slice_tree(name, *addresses, service=of, namespace="default")
    for endpoint in content["endpoints"]:
        endpoint["conditions"] = conditions
    return SliceChanged(SliceName("default", name), msgspec.convert(content, EndpointSlice))


def no_slice(name: str = "kubernetes") -> SliceChanged:
    return SliceChanged(SliceName("default", name), None)


def lifeline(host: str = "10.96.0.1", *before: Event) -> Lifeline:
    line = Lifeline(host)
    for event in before or (service("10.96.0.1"), endpoints("192.168.60.10")):
        assert line.pass_on(event) == [event]
    return line


@pytest.mark.parametrize("vanish", [endpoints(), no_slice(), endpoints("192.168.60.10", ready=False)])
def test_the_last_endpoints_stay_until_there_are_others(vanish):
    line = lifeline()
    assert line.pass_on(vanish) == []
    assert "what it had stays" in line.take_news()
    assert line.take_news() == ""
    back = endpoints("192.168.60.14")
    assert line.pass_on(back) == [back]


def test_new_endpoints_in_another_slice_come_before_the_old_ones_leave():
    line = lifeline()
    gone, back = no_slice(), endpoints("192.168.60.14", name="kubernetes-x7")
    assert line.pass_on(gone) == []
    assert line.pass_on(back) == [back, gone]


def test_only_the_last_endpoints_are_held_back():
    line = lifeline("10.96.0.1", service("10.96.0.1"), endpoints("192.168.60.10"), endpoints("192.168.60.11", name="b"))
    gone = no_slice("b")
    assert line.pass_on(gone) == [gone]
    assert line.pass_on(no_slice()) == []


def test_a_deleted_service_stays_until_it_is_made_anew():
    line = lifeline()
    assert line.pass_on(ServiceChanged(NAME, None)) == []
    assert line.pass_on(no_slice()) == []
    assert line.pass_on(service("10.96.0.1")) == [service("10.96.0.1")]


@pytest.mark.parametrize(
    "host", ["kubernetes.default.svc", "KUBERNETES", "kubernetes.default.svc.example.org", "fd96::1"]
)
def test_the_service_may_be_meant_by_any_of_its_addresses_and_names(host):
    line = lifeline(host, service("10.96.0.1", "fd96:0::1"), endpoints("192.168.60.10"))
    assert line.pass_on(endpoints()) == []


@pytest.mark.parametrize("host", ["192.168.60.10", "api.example.org", "10.96.0.2", ""])
def test_nothing_is_held_back_from_a_node_that_has_another_way_to_the_api_server(host):
    line = lifeline(host)
    for event in (endpoints(), no_slice(), ServiceChanged(NAME, None)):
        assert line.pass_on(event) == [event]
    assert line.take_news() == ""


def test_other_services_pass_even_when_they_bear_the_name():
    line = lifeline()
    for event in (
        endpoints(name="web-1", of="web"),
        no_slice("web-1"),
        SliceChanged(SliceName("shop", "kubernetes"), None),
        ServiceChanged(ServiceName("shop", "kubernetes"), None),
    ):
        assert line.pass_on(event) == [event]


def test_a_service_that_moves_to_another_address_lets_go_of_what_was_held():
    line = lifeline()
    gone = no_slice()
    assert line.pass_on(gone) == []
    moved = service("10.96.0.77")
    assert line.pass_on(moved) == [moved, gone]


def test_an_empty_start_is_taken_as_it_is():
    empty = endpoints()
    assert Lifeline("10.96.0.1").pass_on(empty) == [empty]
