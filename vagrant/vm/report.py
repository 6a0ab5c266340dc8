"""The table kernel × datapath × passed, failed, skipped because: on the terminal, and as docs/kernels.md."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from vagrant.vm import checkout
from vagrant.vm.outcome import Outcome, counted

DOCUMENT = checkout.ROOT / "docs/kernels.md"


@dataclass(frozen=True, slots=True)
class Run:
    """One kernel's: either `outcomes`, or `excuse`, why there are none."""

    kernel: str
    version: str
    outcomes: tuple[Outcome, ...] = ()
    excuse: str = ""
    seconds: float = 0.0


def table(runs: Sequence[Run]) -> list[str]:
    rows = [row for run in runs for row in _rows(run)]
    return ["| kernel | datapath | passed | failed | skipped |", "|---|---|---|---|---|", *rows]


def write(runs: Sequence[Run], accelerator: str) -> None:
    DOCUMENT.write_text("\n".join([*_head(runs, accelerator), *table(runs), *failures(runs), ""]))


def _rows(run: Run) -> list[str]:
    if run.excuse:
        return [f"| {run.kernel} | | | | all, because {_cell(run.excuse)} |"]
    datapaths = sorted({outcome.datapath for outcome in run.outcomes})
    return [_row(run, datapath) for datapath in datapaths]


def _row(run: Run, datapath: str) -> str:
    counts = counted(run.outcomes, datapath)
    skips = Counter(o.reason for o in run.outcomes if o.datapath == datapath and o.verdict == "skipped")
    because = "; ".join(f"{number} because {_cell(reason)}" for reason, number in sorted(skips.items()))
    cells = (f"{run.kernel} ({run.version})", datapath, str(counts["passed"]), str(counts["failed"]), because or "0")
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """A bar would end it."""
    return text.replace("|", r"\|")


def _head(runs: Sequence[Run], accelerator: str) -> list[str]:
    how = {"tcg": "emulated in software (TCG)", "kvm": "with KVM"}[accelerator]
    times = ", ".join(f"{run.kernel} {run.seconds:.0f} s" for run in runs if not run.excuse)
    return [
        "# Kernels",
        "",
        "What `make test-vm` saw, written by the run: the tests marked `kernels`, in virtual machines with kernels of",
        "Debian's archive. They are a part of `make test-kernel`: every variant of the programs is loaded; hooks,",
        "packet programs, TCX links, clsact filters, self-test and probe, one by one; scenarios with real sockets on",
        "both datapaths, devices on top of others, SCTP; and what happens where a feature is missing. An emulated",
        "machine shows what works, not how fast.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, commit {checkout.commit()}, {how}: {times}.",
        "",
    ]


def failures(runs: Sequence[Run]) -> list[str]:
    failed = [(run, outcome) for run in runs for outcome in run.outcomes if outcome.verdict == "failed"]
    if not failed:
        return []
    return ["", "## Failures", "", *(f"- {run.kernel}: `{o.test}`: {o.reason}" for run, o in failed)]
