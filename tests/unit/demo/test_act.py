import math

from kbpf.demo.act import Act, Departure, latency_us
from kbpf.demo.exchange import Answer
from kbpf.demo.scene import Frontend
from kbpf.demo.table import departure_sentence

ONE, TWO = "10.42.1.10:8080", "10.42.1.11:8080"
FINE = Departure(TWO, attempts=400, failed=0, late=0)


def frontend(keeps_clients: bool = False) -> Frontend:
    return Frontend("web", "10.96.0.10", 80, "tcp", (("10.42.1.10", 8080), ("10.42.1.11", 8080)), keeps_clients)


def act(*backends: str | None, keeps_clients: bool = False, departure: Departure = FINE) -> Act:
    """None is a request that was refused."""
    answers = [Answer(backend) if backend else Answer(error="ECONNREFUSED") for backend in backends]
    return Act("ebpf", {frontend(keeps_clients): answers}, departure)


def test_answers_from_every_backend_are_no_problem():
    assert act(ONE, TWO, ONE).problems() == []


def test_failed_requests_are_a_problem():
    assert act(ONE, TWO, None).problems() == ["ebpf: web 10.96.0.10:80/tcp: 1 of 3 requests failed: ECONNREFUSED"]


def test_a_backend_that_was_never_used_is_a_problem():
    assert act(ONE, ONE).problems() == [f"ebpf: web 10.96.0.10:80/tcp: {TWO} was never used"]


def test_answers_from_elsewhere_are_a_problem():
    assert act(ONE, TWO, "10.42.1.99:8080").problems() == [
        "ebpf: web 10.96.0.10:80/tcp: answers from 10.42.1.99:8080, which are no backends"
    ]


def test_session_affinity_must_use_one_backend_only():
    assert act(ONE, ONE, keeps_clients=True).problems() == []
    assert act(ONE, TWO, keeps_clients=True).problems() == [
        "ebpf: web 10.96.0.10:80/tcp: one client met 2 backends in spite of session affinity"
    ]


def test_a_departure_must_lose_no_request_and_be_complete():
    departure = Departure(TWO, attempts=400, failed=3, late=2)
    assert act(ONE, TWO, departure=departure).problems() == [
        "ebpf: 3 of 400 requests failed while a backend left",
        f"ebpf: {TWO} had left and still got 2 requests",
    ]
    assert departure_sentence(act(ONE, TWO)) == (
        f"ebpf: {TWO} left under a stream of 400 new connections: 0 failed, 0 reached it afterwards"
    )


def test_latency_is_the_median_of_what_was_answered():
    answers = [Answer(ONE, latency_us=value) for value in (10.0, 11.0, 900.0)]
    assert latency_us([*answers, Answer(error="timeout", latency_us=1e6)]) == 11.0
    assert math.isnan(latency_us([Answer(error="timeout")]))
