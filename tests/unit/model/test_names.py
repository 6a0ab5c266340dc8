"""How names read."""

import pytest

from kbpf.model.names import Protocol, ServiceName, ServicePortName, SliceName


def test_a_service_port_without_a_name_reads_as_its_service():
    service = ServiceName("shop", "web")
    assert str(service) == "shop/web"
    assert str(SliceName("shop", "web-1")) == "shop/web-1"
    assert str(ServicePortName(service, "http", Protocol.TCP)) == "shop/web:http"
    assert str(ServicePortName(service, "", Protocol.UDP)) == "shop/web"


@pytest.mark.parametrize(("protocol", "number"), [("TCP", 6), ("UDP", 17), ("SCTP", 132)])
def test_protocols_have_their_iana_numbers(protocol: str, number: int):
    assert Protocol(protocol).number == number
