"""Health check node ports: what they answer, in each family, when they open and close, and what cannot be opened."""

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from kbpf.clock import FakeClock
from kbpf.model.address import Family
from kbpf.model.table import ServiceTable
from kbpf.observe.health import HealthTracker
from kbpf.observe.service_health import ServiceHealthPorts
from tests.builders import draining, endpoint, endpoint_slice, port, service, service_name, table_of

EDGE = service_name("edge")
EVERYWHERE = {Family.IPV4: ("127.0.0.1",), Family.IPV6: ("::1",)}


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.health = HealthTracker(self.clock, timeout_s=60)
        self.health.updated(Family)
        self.failures: list[str] = []
        self.ports = ServiceHealthPorts(self.health, lambda *failure: self.failures.append(failure[2]))
        self.number = free_port()

    def edge(self, *more: object, **fields: object) -> ServiceTable:
        """The Service with its slices."""
        fields = {"type": "LoadBalancer", "external_traffic_policy": "Local", **fields}
        fields.setdefault("health_check_node_port", self.number)
        return table_of(service("edge", port(80, "http"), port(443, "https"), ingress=["203.0.113.7"], **fields), *more)

    def synced(self, table: ServiceTable) -> None:
        self.ports.synced([EDGE], table, lambda: EVERYWHERE)

    def get(self, host: str = "127.0.0.1", path: str = "/") -> tuple[int, str, dict]:
        connection = http.client.HTTPConnection(host, self.number, timeout=5)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers["X-Load-Balancing-Endpoint-Weight"], json.loads(body)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def slices(*endpoints: object, family: str = "IPv4") -> object:
    from tests.builders import slice_port

    ports = [slice_port(8080, "http"), slice_port(8443, "https")]
    return endpoint_slice("edge", *endpoints, ports=ports, family=family)  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.ports.stop()


def test_the_answer_is_kube_proxy_s(rig: Rig):
    rig.synced(rig.edge(slices("10.42.1.5")))
    connection = http.client.HTTPConnection("127.0.0.1", rig.number, timeout=5)
    connection.request("POST", "/any/path")
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.read() == (
        b'{\n\t"service": {\n\t\t"namespace": "shop",\n\t\t"name": "edge"\n\t},\n'
        b'\t"localEndpoints": 1,\n\t"serviceProxyHealthy": true\n}'
    )
    connection.close()


def test_addresses_count_once_over_all_ports_and_only_ready_ones_here(rig: Rig):
    here = ("10.42.1.5", "10.42.1.6")
    others = (
        draining("10.42.1.7"),
        endpoint("10.42.1.8", ready=False),
        endpoint("10.42.2.5", "n2"),
        endpoint("10.42.1.9", None),
    )
    rig.synced(rig.edge(slices(*here, *others)))
    assert rig.get()[:2] == (200, "2")


def test_the_last_endpoint_that_leaves_makes_the_node_leave(rig: Rig):
    rig.synced(rig.edge(slices("10.42.1.5")))
    assert rig.get()[0] == 200
    rig.synced(rig.edge(slices(endpoint("10.42.2.31", "n2"))))
    assert rig.get()[:2] == (503, "0")
    rig.synced(rig.edge())
    assert rig.get()[2]["localEndpoints"] == 0


def test_a_proxy_that_has_stopped_working_says_so_although_there_are_endpoints(rig: Rig):
    rig.synced(rig.edge(slices("10.42.1.5")))
    rig.health.queued()
    rig.clock.advance(60)
    status, _, body = rig.get()
    assert (status, body["localEndpoints"], body["serviceProxyHealthy"]) == (503, 1, False)
    rig.health.updated(Family)
    assert rig.get()[0] == 200


def test_a_node_that_is_being_removed_still_says_yes_for_the_service(rig: Rig):
    rig.synced(rig.edge(slices("10.42.1.5")))
    rig.health.node_eligible(False)
    assert rig.get()[0] == 200


def test_each_family_answers_with_its_own_count(rig: Rig):
    both = {"cluster_ips": ["10.96.0.10", "fd96::10"]}
    rig.synced(rig.edge(slices("10.42.1.5"), slices("fd42:1::5", "fd42:1::6", family="IPv6"), **both))
    assert (rig.get("127.0.0.1")[1], rig.get("::1")[1]) == ("1", "2")


@pytest.mark.parametrize("fields", [{"external_traffic_policy": "Cluster"}, {"type": "NodePort"}, None])
def test_a_port_is_closed_when_its_service_needs_none_any_more(rig: Rig, fields: dict | None):
    rig.synced(rig.edge(slices("10.42.1.5")))
    rig.synced(ServiceTable() if fields is None else rig.edge(slices("10.42.1.5"), **fields))
    with pytest.raises(ConnectionRefusedError):
        rig.get()


def test_another_number_is_another_port(rig: Rig):
    rig.synced(rig.edge(slices("10.42.1.5")))
    before, rig.number = rig.number, free_port()
    rig.synced(rig.edge(slices("10.42.1.5")))
    assert rig.get()[0] == 200
    rig.number = before
    with pytest.raises(ConnectionRefusedError):
        rig.get()


def test_it_listens_only_where_node_ports_are_open(rig: Rig):
    rig.ports.synced([EDGE], rig.edge(slices("10.42.1.5")), lambda: {Family.IPV4: ("127.0.0.2",)})
    assert rig.get("127.0.0.2")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        rig.get("127.0.0.1")


def test_a_taken_port_is_said_once_and_opened_when_it_is_free(rig: Rig):
    table = rig.edge(slices("10.42.1.5"))
    with socket.create_server(("127.0.0.1", rig.number)):
        rig.synced(table)
        rig.synced(table)
    assert rig.failures == [f"127.0.0.1:{rig.number}: Address already in use"]
    rig.synced(table)
    assert rig.get()[0] == 200


def test_services_without_such_a_port_open_nothing_and_ask_nothing(rig: Rig):
    rig.ports.synced([EDGE], table_of(service("edge")), lambda: pytest.fail("asked for addresses"))
