"""`make e2e` and its like: `python -m tests.e2e --help`."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

import click

from kbpf.errors import KbpfError
from tests.cluster.programs import ProgramFailed
from tests.e2e import crowd, daemonset_report, folder, report, suite, trial
from tests.e2e import swap as swapping
from tests.e2e.cluster import Cluster, MachineChanged, remove_remains, running_cluster
from tests.e2e.engines import ENGINES, KBPF_EBPF, KBPF_IPTABLES, Engine, assert_clean
from tests.e2e.own_image import make_own_archive
from tests.e2e.suite import Outcome
from tests.e2e.trial import OVERLAYS
from tests.progress import say, step

NODES = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A Kubernetes cluster of real kubelets on this machine, and its own network tests against kbpf and kube-proxy.

    The first run builds everything and takes half an hour; later ones start within a minute. Ctrl-C at any moment takes
    the cluster away.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@main.command()
@click.option("--engine", "names", multiple=True, type=click.Choice(list(ENGINES)), help="Default: all.")
@click.option("--focus", default="", help="Only tests whose name contains this.")
@click.option("--control/--no-control", default=True, help="Show first that without a proxy the tests fail.")
def run(names: Sequence[str], focus: str, control: bool) -> None:
    """Every test that the real kube-proxy passes here, with each engine; writes docs/conformance.md."""
    engines = [ENGINES[name] for name in names or ENGINES]
    outcomes: dict[str, list[Outcome]] = {engine.name: [] for engine in engines}
    changes: list[MachineChanged] = []
    for node_count, of_this_size in ((NODES, suite.NAMES), (2 * NODES, suite.SIX_NODE_NAMES)):
        chosen = [name for name in of_this_size if focus in name]
        if not chosen:
            continue
        try:
            with running_cluster(folder.chosen(), node_count) as cluster:
                if control and node_count == NODES:
                    _run_control(cluster)
                for engine in engines:
                    outcomes[engine.name] += _run_engine(cluster, engine, chosen)
        except MachineChanged as change:  # fails the run at its end, when an hour's outcomes are written
            changes.append(change)
    _refuse_void(outcomes)
    if control and not focus and not names:
        report.write(outcomes)
        say(f"written: {report.DOCUMENT}")
    _judge(outcomes)
    if changes:
        raise changes[0]


@main.command()
def short() -> None:
    """The conformance tests of Services and Networking, with both of kbpf's datapaths."""
    with running_cluster(folder.chosen(), NODES) as cluster:
        outcomes = _run_short(cluster)
    _judge(outcomes)


@main.command()
def scale() -> None:
    """The same while 2,000 Services with 10,000 endpoints are there."""
    with running_cluster(folder.chosen(), NODES) as cluster:
        with step("writing 2,000 Services with 5 endpoints each"):
            crowd.create(cluster.control_plane)
        outcomes = _run_short(cluster)
    _judge(outcomes)


@main.command()
def swap() -> None:
    """From kube-proxy to kbpf, between its datapaths, and back, under load: connections tried and lost."""
    with running_cluster(folder.chosen(), NODES) as cluster:
        swaps = swapping.swap_all(cluster)
    print(*(one.line() for one in swaps), sep="\n")
    if any(one.must_be_lossless and one.losses.has_any for one in swaps):
        raise SystemExit("connections were lost")


@main.command()
@click.option("--overlay", "names", multiple=True, type=click.Choice(list(OVERLAYS)), help="Default: all.")
def daemonset(names: Sequence[str]) -> None:
    """kbpf as its DaemonSet: each overlay applied, tested, rolled out and deleted; writes docs/daemonset.md."""
    chosen = folder.chosen()
    with running_cluster(chosen, NODES, [make_own_archive(chosen)]) as cluster:
        trials = [trial.run(cluster, OVERLAYS[name]) for name in names or OVERLAYS]
        print(*daemonset_report.table(trials), sep="\n")
    problems = [problem for one in trials for problem in one.problems()]
    if problems:
        raise SystemExit("\n".join(["the DaemonSet failed:", *problems]))
    if not names:
        daemonset_report.write(trials)
        say(f"written: {daemonset_report.DOCUMENT}")


@main.command()
@click.option("--engine", "name", type=click.Choice([*ENGINES, "none"]), default="kbpf-ebpf", show_default=True)
@click.option("--nodes", default=NODES, show_default=True)
def shell(name: str, nodes: int) -> None:
    """A cluster to play with, until Ctrl-C."""
    with running_cluster(folder.chosen(), nodes) as cluster:
        if name != "none":
            cluster.proxies.start(ENGINES[name])
        alias = " ".join(cluster.control_plane.command())
        print(f"\nThe cluster is up, with {name}. In another shell:\n\n    alias kubectl='{alias}'\n")
        for node in cluster.nodes:
            print(f"    {' '.join(node.command('bash'))}    # a shell on {node.name}")
        print(f"\nLogs: {cluster.folder.logs} and {cluster.folder.cluster}/node*/. Ctrl-C takes it away.")
        threading.Event().wait()


@main.command()
def down() -> None:
    """Take away what a crashed run left."""
    remove_remains()


def _refuse_void(outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    """Raises SystemExit when a test failed with the real kube-proxy: then the others' outcomes mean nothing."""
    failed = _failures(outcomes, "kube-proxy")
    if failed:
        raise SystemExit(f"this run is void, for the control failed: {'; '.join(failed)}")


def _judge(outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    """Raises SystemExit when a test failed with kbpf."""
    print(*report.table(outcomes), *report.summary(outcomes), sep="\n")
    failed = _failures(outcomes, "kbpf")
    if failed:
        raise SystemExit(f"{len(failed)} failed with kbpf: {'; '.join(failed)}")


def _failures(outcomes: Mapping[str, Sequence[Outcome]], proxy: str) -> list[str]:
    of_proxy = [found for name, found in outcomes.items() if name.startswith(proxy)]
    return [f"{o.name}: {o.failure}" for found in of_proxy for o in found if not o.passed]


def _run_short(cluster: Cluster) -> dict[str, list[Outcome]]:
    return {engine.name: _run_engine(cluster, engine, suite.SHORT_NAMES) for engine in (KBPF_EBPF, KBPF_IPTABLES)}


def _run_engine(cluster: Cluster, engine: Engine, names: Sequence[str]) -> list[Outcome]:
    assert_clean(cluster.nodes)
    cluster.proxies.start(engine)
    with step(f"{len(names)} tests with {engine.name}"):
        results = cluster.folder.results / engine.name.replace(" ", "-")
        found = suite.run(cluster.control_plane, names, results, len(cluster.nodes), cluster.check)
    for outcome in found:
        if not outcome.passed:
            say(f"failed: {outcome.name}: {outcome.failure}")
    cluster.proxies.remove()
    return found


def _run_control(cluster: Cluster) -> None:
    """Raises ProgramFailed when a test passes though nothing balances: the rig is broken then."""
    assert_clean(cluster.nodes)
    with step(f"the control: {len(suite.CONTROL_NAMES)} tests without a proxy, which must fail"):
        results = cluster.folder.results / "none"
        found = suite.run(cluster.control_plane, suite.CONTROL_NAMES, results, len(cluster.nodes), cluster.check)
    wrong = [outcome.name for outcome in found if outcome.passed or not outcome.did_run]
    if wrong:
        raise ProgramFailed(f"without any proxy these passed, or did not run at all: {wrong}")


if __name__ == "__main__":
    try:
        main()
    except (KbpfError, ProgramFailed, subprocess.CalledProcessError) as error:
        output = getattr(error, "stdout", None)
        raise SystemExit(f"e2e: {error}{f': {output}' if output else ''}") from error
