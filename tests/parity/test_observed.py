"""What operators see of kbpf is what they see of the real kube-proxy: health, metrics, the configuration in force."""

import http.client
import json
import re
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kbpf.demo.namespaces import Namespace
from tests.parity.comparison import Comparison
from tests.parity.objects import endpoint, endpoint_slice, port, service

pytestmark = [pytest.mark.root, pytest.mark.parity]

HEALTH_PORT, EMPTY_HEALTH_PORT = 32100, 32101
EDGE = service(
    "shop/edge",
    "10.96.0.20",
    port(80),
    type="LoadBalancer",
    externalTrafficPolicy="Local",
    healthCheckNodePort=HEALTH_PORT,
)
FAR = service(
    "shop/far",
    "10.96.0.21",
    port(80),
    type="LoadBalancer",
    externalTrafficPolicy="Local",
    healthCheckNodePort=EMPTY_HEALTH_PORT,
)
OBJECTS = [
    *(EDGE, endpoint_slice("shop/edge", [port(8080)], endpoint("10.42.1.5", "n1"), endpoint("10.42.1.6", "n1"))),
    *(FAR, endpoint_slice("shop/far", [port(8080)], endpoint("10.42.2.5", "n2"))),
]
# Of the process, not of what it was told.
OWN = {"clientConnection.kubeconfig"}
# kube-proxy has no defaults in the sections of other modes, and lists that are null.
UNUSED = re.compile(r".*\.((ipvs|nftables)\..*|logging\.options.*|nodePortAddresses)")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


@pytest.fixture(scope="module")
def nodes(shared_comparison: Comparison) -> tuple[Namespace, Namespace]:
    """That of kube-proxy and that of kbpf, in step."""
    shared_comparison.show(OBJECTS)
    shared_comparison.check()
    pair = shared_comparison.pairs[0]
    return pair.control_node, pair.own_node


def get(node: Namespace, number: int, path: str, method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=5)
    with node.entered():
        connection.connect()
    connection.request(method, path)
    response = connection.getresponse()
    kept = {name: value for name, value in response.getheaders() if name.startswith(("X-", "Content-Type"))}
    answer = Answer(response.status, kept, response.read().decode())
    connection.close()
    return answer


@pytest.mark.parametrize("number", [HEALTH_PORT, EMPTY_HEALTH_PORT])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_health_check_node_ports_answer_the_same(nodes: tuple[Namespace, Namespace], number: int, method: str) -> None:
    control, own = (get(node, number, "/any", method) for node in nodes)
    assert own == control


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/", "/healthz/"])
def test_health_has_the_same_form(nodes: tuple[Namespace, Namespace], path: str) -> None:
    control, own = (get(node, 10256, path) for node in nodes)
    assert (own.status, own.headers) == (control.status, control.headers)
    assert _without_times(own.body) == _without_times(control.body)


@pytest.mark.parametrize("path", ["/proxyMode", "/healthz", "/nothing"])
def test_plain_pages_are_the_same(nodes: tuple[Namespace, Namespace], path: str) -> None:
    control, own = (get(node, 10249, path) for node in nodes)
    assert own == control


def test_every_metric_of_kube_proxy_has_the_same_type_and_labels(nodes: tuple[Namespace, Namespace]) -> None:
    control, own = (_metrics(get(node, 10249, "/metrics").body) for node in nodes)
    assert {name: own.get(name) for name in control} == control


def test_rule_counts_agree(nodes: tuple[Namespace, Namespace]) -> None:
    """kube-proxy counts lines, the chains' own included, so ours are somewhat fewer."""
    control, own = (_rules(get(node, 10249, "/metrics").body) for node in nodes)
    assert control.keys() == own.keys()
    assert all(0 < own[key] <= control[key] for key in control), (control, own)


def test_the_configuration_in_force_is_the_same(nodes: tuple[Namespace, Namespace]) -> None:
    control, own = (fields(json.loads(get(node, 10249, "/configz").body)) for node in nodes)
    compared = {name for name in control if not UNUSED.fullmatch(name)} - {f"kubeproxy.config.k8s.io.{x}" for x in OWN}
    assert {name: own.get(name) for name in compared} == {name: control[name] for name in compared}


def _without_times(body: str) -> str:
    return re.sub(r'"\d{4}-[^"]*Z"', '"TIME"', body)


def _metrics(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    return {
        family.name: (family.type, frozenset(label for sample in family.samples for label in sample.labels))
        for family in text_string_to_metric_families(text)
        if family.name.startswith("kubeproxy_")
    }


def _rules(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["table"], sample.labels["ip_family"]): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == "kubeproxy_sync_proxy_rules_iptables_total"
        for sample in family.samples
    }


def fields(tree: dict[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            found |= fields(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
