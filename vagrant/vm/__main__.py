"""`vagrant/run KERNELS [TARGET]`: prepares what is missing, boots each kernel in turn, ends with the worst status."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.progress import say
from vagrant.vm import checkout, folder, installed, kernels, machine, outcome, report, system
from vagrant.vm.commands import VmError
from vagrant.vm.folder import Folder
from vagrant.vm.installed import Installed
from vagrant.vm.kernels import Kernel
from vagrant.vm.outcome import Outcome
from vagrant.vm.report import Run

# Emulated, on two processors that twenty other programs want as well, half an hour was too little.
LIMIT_S = 3600.0


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(_run(_arguments()))
    except VmError as error:
        sys.exit(f"vagrant/run: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _end(*_: object) -> None:
    """A second signal would interrupt the clean-up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def _arguments() -> argparse.Namespace:
    names = ", ".join(kernels.load())
    parser = argparse.ArgumentParser(prog="vagrant/run", description="Run a make target on other kernels, in qemu.")
    parser.add_argument("kernels", help=f"one or more, joined by commas: {names}; all; or default")
    parser.add_argument("target", nargs="*", help="what make is given inside; without it, what kernels.json says")
    parser.add_argument("--report", action="store_true", help=f"print a table and write {report.DOCUMENT.name}")
    parser.add_argument("--update", action="store_true", help="look for newer kernels in the archive first")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="for each machine")
    return parser.parse_args()


def _run(wish: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise VmError("needs root: the machines' file system is made by mmdebstrap and a chroot")
    chosen = kernels.choose("" if wish.kernels == "default" else wish.kernels)
    cache = folder.chosen()
    with cache.only_one():
        system.build(cache)
        prepared = [(kernel, _prepare(cache, kernel, wish.update)) for kernel in chosen]
    runs, worst = [], 0
    for kernel, found in prepared:
        status, run = (0, found) if isinstance(found, Run) else _boot(cache, kernel, found, wish)
        runs.append(run)
        worst = max(worst, status)
    if wish.report:
        for run in runs:
            report.keep(cache.results, run)
        report.DOCUMENT.write_text(report.page(report.kept(cache.results, kernels.load())))
        print(*report.table(runs), *report.failures(runs), f"written: {report.DOCUMENT}", sep="\n")
    return worst


def _prepare(cache: Folder, kernel: Kernel, is_update: bool) -> Installed | Run:
    """What there is to boot; for an optional kernel that cannot be had, the end of its run."""
    try:
        return installed.install(cache, kernel, is_update=is_update)
    except VmError as error:
        if not kernel.is_optional:
            raise
        say(f"{kernel.name}: skipped: {error}")
        return Run(kernel.name, "", excuse=str(error))


def _boot(cache: Folder, kernel: Kernel, boots: Installed, wish: argparse.Namespace) -> tuple[int, Run]:
    target, commit = wish.target or kernel.target, checkout.commit()
    say(f"{kernel.name}: booting Linux {boots.version} ({machine.accelerator()}): make {' '.join(target)}")
    with tempfile.TemporaryDirectory(prefix="kbpf-vm-") as scratch:
        try:
            ended = machine.run(kernel, boots, cache.image, ["make", *target], Path(scratch), wish.limit)
        except VmError as error:
            say(str(error))
            return 1, Run(kernel.name, boots.version, (_failure(target, str(error)),))
        outcomes = outcome.read(ended.results)
    say(f"{kernel.name}: exit status {ended.status} after {ended.seconds:.0f} s")
    if ended.status and not any(each.verdict == "failed" for each in outcomes):
        outcomes += (_failure(target, f"exit status {ended.status}"),)
    how = f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}, {machine.accelerator()}, {ended.seconds:.0f} s"
    if wish.target:
        how += f", of it only `make {' '.join(target)}`"
    return ended.status, Run(kernel.name, boots.version, outcomes, when=how)


def _failure(target: Sequence[str], reason: str) -> Outcome:
    """Of the run as a whole."""
    return Outcome(f"make {' '.join(target)}", "all", "failed", reason)


if __name__ == "__main__":
    main()
