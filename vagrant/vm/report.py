"""The table kernel × datapath × passed, failed, skipped because: on the terminal, and as docs/kernels.md.

The last run of each machine is kept beside the kernels, so that the page shows all of them when one is run again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vagrant.vm import checkout
from vagrant.vm.outcome import Outcome, counted

DOCUMENT = checkout.ROOT / "docs/kernels.md"
HEAD = """# Kernels

What `make test-vm` saw, written by the runs: the tests marked `kernels`, in virtual machines with kernels of Debian's
archive. They are a part of `make test-kernel`: the programs with and without their options are loaded; hooks, packet
programs, TCX links, clsact filters, self-test and probe are tried one by one; scenarios run with real sockets on both
datapaths, devices on top of others and SCTP as well; and so does what happens where a feature is missing. An emulated
machine shows what works, not how fast.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One machine's: either `outcomes`, or `excuse`, why there are none."""

    kernel: str
    version: str
    outcomes: tuple[Outcome, ...] = ()
    excuse: str = ""
    when: str = ""
    """Day, commit, with which accelerator and in how many seconds."""


def keep(folder: Path, run: Run) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{run.kernel}.json").write_text(json.dumps(asdict(run)))


def kept(folder: Path, names: Iterable[str]) -> list[Run]:
    """The last runs of these machines, as far as there are any."""
    paths = [folder / f"{name}.json" for name in names]
    trees = [json.loads(path.read_text()) for path in paths if path.exists()]
    return [Run(**{**tree, "outcomes": tuple(Outcome(**outcome) for outcome in tree["outcomes"])}) for tree in trees]


def page(runs: Sequence[Run]) -> str:
    days = [f"- {run.kernel}: {run.version}, {run.when}" for run in runs if not run.excuse]
    return "\n".join([HEAD, *table(runs), "", *days, *failures(runs), ""])


def table(runs: Sequence[Run]) -> list[str]:
    rows = [row for run in runs for row in _rows(run)]
    return ["| machine | datapath | passed | failed | skipped |", "|---|---|---|---|---|", *rows]


def failures(runs: Sequence[Run]) -> list[str]:
    failed = [(run, outcome) for run in runs for outcome in run.outcomes if outcome.verdict == "failed"]
    if not failed:
        return []
    return ["", "## Failures", "", *(f"- {run.kernel}: `{o.test}`: {o.reason}" for run, o in failed)]


def _rows(run: Run) -> list[str]:
    if run.excuse:
        return [f"| {run.kernel} | | | | all, because {_cell(run.excuse)} |"]
    return [_row(run, datapath) for datapath in sorted({outcome.datapath for outcome in run.outcomes})]


def _row(run: Run, datapath: str) -> str:
    counts = counted(run.outcomes, datapath)
    skips = Counter(o.reason for o in run.outcomes if o.datapath == datapath and o.verdict == "skipped")
    because = "; ".join(f"{number} because {_cell(reason)}" for reason, number in sorted(skips.items()))
    return f"| {run.kernel} | {datapath} | {counts['passed']} | {counts['failed']} | {because or '0'} |"


def _cell(text: str) -> str:
    """A bar would end it."""
    return text.replace("|", r"\|")
