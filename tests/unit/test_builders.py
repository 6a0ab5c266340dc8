"""The builders say what they claim to say; everything else stands on them."""

from kbpf.model.address import Family
from kbpf.model.table import Backend
from tests.builders import changed, endpoint_slice, gone, port, service, service_name, table_of


def test_a_service_and_its_slice_meet_in_the_table():
    table = table_of(service("web", port(80, "http")), endpoint_slice("web", "10.42.1.5"))
    assert [resolved.cluster for resolved in table] == [()]  # the port names differ
    table = table_of(service("web"), endpoint_slice("web", "10.42.1.5"))
    assert [resolved.cluster for resolved in table] == [(Backend("10.42.1.5", 8080, is_local=True),)]


def test_cluster_ips_decide_the_families():
    table = table_of(service("web", cluster_ips=("fd96::10", "10.96.0.10")))
    assert [resolved.family for resolved in table.ports_of(service_name("web"))] == [Family.IPV6, Family.IPV4]


def test_an_object_is_named_alike_when_it_comes_and_when_it_goes():
    for thing in (service("web"), endpoint_slice("web")):
        assert changed(thing).name == gone(thing).name
