"""The upstream network tests against the running cluster: which ones, how they are started, what came out.

`tests.txt` names the tests that the real kube-proxy passes on this rig, one a line, without the group in front.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.programs import ProgramFailed, built
from tests.e2e.control_plane import ControlPlane
from tests.e2e.network import CONTROL
from tests.progress import say

GROUP = "[sig-network]"
TIMEOUT = "150m"
WORKERS = 8
PROGRESS_S = 30
NAMES = tuple(Path(__file__).with_name("tests.txt").read_text().splitlines())
# A test that passes without a proxy says nothing about one: these must fail then.
CONTROL_NAMES = (
    "Services should serve a basic endpoint from pods [Conformance]",
    "Services should be able to create a functioning NodePort service [Conformance]",
    "Services should have session affinity work for service with type clusterIP [LinuxOnly] [Conformance]",
    "Services should be able to switch session affinity for NodePort service [LinuxOnly] [Conformance]",
    "Services should allow pods to hairpin back to themselves through services",
    "Services should preserve source pod IP for traffic thru service cluster IP [LinuxOnly]",
)
# They want two nodes in each of three zones.
SIX_NODE_NAMES: tuple[str, ...] = (
    "Traffic Distribution should route traffic correctly between pods on multiple nodes when using PreferClose",
    "Traffic Distribution should route traffic correctly between pods on multiple nodes when using PreferSameZone",
    "Traffic Distribution should route traffic to an endpoint on the same node or fall back to same zone when using "
    "PreferSameNode",
)
SHORT_NAMES: tuple[str, ...] = tuple(
    n for n in NAMES if n.startswith(("Services ", "Networking ")) and "[Conformance]" in n
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one test. `failure` is empty when it passed."""

    name: str
    seconds: float
    failure: str = ""
    did_run: bool = True

    @property
    def passed(self) -> bool:
        return not self.failure


def run(
    control_plane: ControlPlane, names: Sequence[str], results: Path, node_count: int, check: Callable[[], None]
) -> list[Outcome]:
    """One outcome for each name; a test that did not run has failed. `check` raises when the cluster is broken."""
    results.mkdir(parents=True, exist_ok=True)
    report = results / "report.json"
    report.unlink(missing_ok=True)
    log = results / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(control_plane, names, results, node_count),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _watch(process, log, len(names), check)
        finally:
            process.kill()
            process.wait()
    if not report.exists():
        end = log.read_text(errors="replace").splitlines()[-30:]
        raise ProgramFailed("\n".join(["the tests wrote no report; the end of their output:", *end]))
    found = {outcome.name: outcome for outcome in _outcomes(json.loads(report.read_text()))}
    return [found.get(name, Outcome(name, 0, "did not run", did_run=False)) for name in names]


def _command(control_plane: ControlPlane, names: Sequence[str], results: Path, node_count: int) -> list[str]:
    focus = [f"--focus={re.escape(f'{GROUP} {name}')}$" for name in names]
    return [
        *("nsenter", f"--net={CONTROL.path}", "setpriv", "--pdeathsig=KILL", "--"),
        # In a process namespace, ginkgo's workers end with it, however it ends.
        *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *(str(built("ginkgo")), f"--procs={min(WORKERS, len(names))}", "-v", "--no-color", f"--timeout={TIMEOUT}"),
        *(f"--output-dir={results}", "--json-report=report.json"),
        *focus,
        *(str(built("network.test")), "--", "--provider=local", f"--num-nodes={node_count}"),
        *(f"--kubeconfig={control_plane.certificates.kubeconfig('admin')}", f"--kubectl-path={built('kubectl')}"),
        *("--allowed-not-ready-nodes=0", "--prepull-images=false", "--disable-log-dump=true"),
        *("--dump-logs-on-failure=false"),
    ]


def _watch(process: "subprocess.Popen[bytes]", log: Path, total: int, check: Callable[[], None]) -> None:
    told = time.monotonic()
    while process.poll() is None:
        time.sleep(1)
        check()
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            text = log.read_text(errors="replace")
            say(f"{len(re.findall(r'^• ', text, re.MULTILINE))} of {total} tests have ended")


def _outcomes(suites: list[dict[str, Any]]) -> list[Outcome]:
    """From ginkgo's own report: every test that was begun."""
    tests = [test for one in suites for test in one["SpecReports"] if test["LeafNodeType"] == "It"]
    return [_outcome(test) for test in tests if test["NumAttempts"]]


def _outcome(test: dict[str, Any]) -> Outcome:
    words = [*(test["ContainerHierarchyTexts"] or ()), test["LeafNodeText"]]
    name = " ".join(words).removeprefix(f"{GROUP} ")
    seconds = test["RunTime"] / 1e9
    if test["State"] == "passed":
        return Outcome(name, seconds)
    message = " ".join(test.get("Failure", {}).get("Message", "").split())
    return Outcome(name, seconds, f"{test['State']}: {message[:300]}")
