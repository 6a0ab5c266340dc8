"""`kbpf demo` as a newcomer runs it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.demo.client import Client
from kbpf.demo.exchange import Request
from kbpf.demo.node import Network, Node
from kbpf.demo.place import Place
from kbpf.demo.remains import remains
from kbpf.demo.stage import FILES, PREFIX, abandoned, take_down
from tests.kernel.world import backends

pytestmark = pytest.mark.root

DEMO = [sys.executable, "-m", "kbpf", "demo"]


def left_by(process: "subprocess.Popen[str]") -> list[Path]:
    tag = f"{PREFIX}{process.pid}"
    return [*remains(tag), *FILES.glob(tag)]


def start(*options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*DEMO, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.fixture
def kept() -> Iterator[str]:
    """The tag of a demo that was left standing."""
    process = start("--datapath=iptables", "--keep")
    tag = f"{PREFIX}{process.pid}"
    try:
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        assert "kbpf demo --remove" in out
        yield tag
    finally:
        take_down(tag)


def test_the_demo_shows_both_datapaths_and_leaves_nothing() -> None:
    process = start()
    out, errors = process.communicate()
    assert process.returncode == 0, out + errors
    header = next(line.split() for line in out.splitlines() if "direct" in line)
    assert header == ["Service", "Backend", "ebpf", "iptables", "direct"]
    assert all(f"10.42.1.{pod}:8080" in out for pod in (10, 11, 12))
    assert left_by(process) == []


@pytest.mark.parametrize(("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_ended_early_leaves_nothing(how: signal.Signals, status: int) -> None:
    process = start()
    assert process.stderr is not None
    while "starting kbpf" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(how)
    process.communicate()
    assert process.returncode == status
    assert left_by(process) == []


def test_a_kept_demo_goes_on_until_it_is_removed(kept: str) -> None:
    node = Node(Network(kept))
    client = Client(Place(f"{node.namespace.path}-p0", str(node.cgroup / "pods")))
    answers = client.send(Request("10.96.0.10", 80, count=60))
    assert backends(answers) == {f"10.42.1.{pod}:8080" for pod in (10, 11, 12)}
    assert kept in abandoned()
    take_down(kept)
    assert remains(kept) == []
    assert kept not in abandoned()
