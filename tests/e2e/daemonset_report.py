"""`docs/daemonset.md`: what came of each overlay of deploy/kubernetes, made from the trials of a run."""

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.kustomization import missing_capabilities
from tests.e2e.report import KUBERNETES, circumstances
from tests.e2e.trial import Trial
from tests.e2e.workload import Losses

DOCUMENT = Path(__file__).parents[2] / "docs/daemonset.md"
HEAD = """\
# The DaemonSet on real kubelets

kbpf from its image, as the DaemonSet of [deploy/kubernetes](../deploy/README.md), run by `make e2e-daemonset`, which
writes this page. Each overlay is applied to nodes without any service proxy (canary: kube-proxy stays on the other
nodes); pods, nodes and clients outside call a Service over both IP families; where the table says so, the conformance
tests of Services and Networking run. Then, while connections are made all the time and others are held, `kubectl set
image` rolls out a newer build with another version and other programs, and `kubectl delete` takes the DaemonSet away.
Last, the component `cleanup` cleans the nodes.

Kubernetes {kubernetes}, three nodes, {circumstances}.{missing}
"""
COLUMNS = (
    "overlay",
    "datapath",
    "pods ready",
    "conformance",
    "roll-out: new tried/lost",
    "held/lost",
    "deletion: new tried/lost",
    "held/lost",
    "left after the clean-up",
)


def write(trials: Sequence[Trial]) -> None:
    DOCUMENT.write_text(document(table(trials)))


def document(lines: Sequence[str]) -> str:
    """The page around a table."""
    names = ", ".join(missing_capabilities())
    missing = f" Overlays that ask for {names} run without: this machine has none to give." if names else ""
    head = HEAD.format(kubernetes=KUBERNETES, circumstances=circumstances(), missing=missing)
    return "\n".join([head, *lines, ""])


def table(trials: Sequence[Trial]) -> list[str]:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_row, trials)]
    return [f"| {' | '.join(row)} |" for row in rows]


def _row(trial: Trial) -> tuple[str, ...]:
    readiness = trial.started
    return (
        trial.overlay.name,
        trial.overlay.datapath,
        f"{readiness.ready} of {readiness.wanted}",
        _conformance(trial),
        *_figures(trial.roll_out),
        *_figures(trial.deletion),
        "; ".join(trial.left) or "nothing",
    )


def _conformance(trial: Trial) -> str:
    if not trial.conformance:
        return ""
    return f"{sum(outcome.passed for outcome in trial.conformance)} of {len(trial.conformance)} passed"


def _figures(losses: Losses) -> tuple[str, str]:
    return f"{losses.tried}/{losses.failed}", f"{losses.held}/{losses.lost}"
