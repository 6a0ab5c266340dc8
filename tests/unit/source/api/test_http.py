"""Requests over real sockets: what is told of each, whatever comes of it."""

from collections.abc import Iterator

import pytest

from kbpf.clock import SystemClock
from kbpf.errors import ApiFailure
from kbpf.source.api.access import Access
from kbpf.source.api.http import HttpTransport
from kbpf.source.api.request import page
from kbpf.source.api.resource import SERVICES
from tests.faulty_api_server import FaultyApiServer

Exchange = tuple[str, str, int | None]


@pytest.fixture
def api() -> Iterator[FaultyApiServer]:
    server = FaultyApiServer()
    yield server
    server.close()


@pytest.fixture
def exchanges() -> list[Exchange]:
    return []


@pytest.fixture
def transport(api: FaultyApiServer, exchanges: list[Exchange]) -> HttpTransport:
    def asked(method: str, host: str, status: int | None, duration_s: float) -> None:
        assert duration_s >= 0
        exchanges.append((method, host, status))

    return HttpTransport(Access(None, api.url, SystemClock()), asked=asked)


def test_answers_and_refusals_are_told_with_their_status(api, transport, exchanges):
    with transport.open(page(SERVICES)) as answer:
        answer.read()
    api.refuse(503)
    with pytest.raises(ApiFailure), transport.open(page(SERVICES)):
        pass
    host = f"127.0.0.1:{api.port}"
    assert exchanges == [("GET", host, 200), ("GET", host, 503)]


def test_a_server_that_is_away_is_told_without_a_status(api, transport, exchanges):
    api.go_away()
    with pytest.raises(ApiFailure), transport.open(page(SERVICES)):
        pass
    assert exchanges == [("GET", f"127.0.0.1:{api.port}", None)]
    api.resume()


def test_an_object_that_is_not_taken_is_a_failure_with_the_status(transport, exchanges):
    with pytest.raises(ApiFailure) as raised:
        transport.write("POST", "/apis/events.k8s.io/v1/namespaces/default/events", b"{}")
    assert raised.value.status == exchanges[0][2] == 501
