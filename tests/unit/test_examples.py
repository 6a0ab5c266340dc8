"""The example manifests, read by the product and decided by its policy: what `kbpf demo` shows must come of them."""

import pytest

from kbpf.demo.scene import Frontend, examples, read_scene
from kbpf.model.events import NodeChanged
from kbpf.model.flow import Origin
from kbpf.model.names import Protocol
from kbpf.model.node import NodeTopology
from kbpf.model.table import ServiceTable
from kbpf.policy.reference import ReferenceNode, expected_verdict
from kbpf.policy.resolve import resolve
from kbpf.source.manifests import load_manifests
from kbpf.tracking.trackers import Trackers
from tests.builders import flow


@pytest.fixture(scope="module")
def table() -> ServiceTable:
    events, problems = load_manifests([str(examples())], "n1")
    assert problems == []
    trackers = Trackers("n1")
    for event in events:
        if not isinstance(event, NodeChanged):
            _, object_problems = trackers.update(event)
            assert object_problems == ()
    table = ServiceTable()
    for name, ports in resolve(trackers.service_names, trackers, NodeTopology("n1")).items():
        table.replace(name, ports)
    return table


@pytest.mark.parametrize("frontend", read_scene(examples()).frontends, ids=lambda frontend: frontend.name)
def test_every_example_frontend_leads_to_the_backends_that_the_demo_expects(table: ServiceTable, frontend: Frontend):
    source = "fd42:1::100" if ":" in frontend.address else "10.42.1.100"
    call = flow(Origin.POD, source, frontend.address, frontend.port, Protocol(frontend.protocol.upper()))
    verdict = expected_verdict(table, call, ReferenceNode())
    assert {(str(backend.address), backend.port) for backend in verdict.backends} == set(frontend.backends)
