"""`make test-distributions`: kbpf's own tests in the root file systems of the distributions that it supports.

Each has its Python, BCC, compiler and iptables; the kernel is the machine's. Prints a table at the end, and writes it
to docs/distributions.md when every distribution was tried with the whole of `make test`.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.distributions.outcome import Outcome
from tests.distributions.system import NoSystem, System
from tests.distributions.table import page, table

RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13", "noble": "Ubuntu 24.04"}
PAGE = Path(__file__).parents[2] / "docs/distributions.md"
WHOLE = "test"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.distributions", description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"of {', '.join(RELEASES)}; none: all")
    parser.add_argument("--target", default=WHOLE, help="of the Makefile; make test if it is not given")
    parser.add_argument("--pytest", default="", metavar="OPTIONS", help="for pytest, such as '-k affinity'")
    options = parser.parse_args(arguments)
    if unknown := set(options.releases) - set(RELEASES):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(RELEASES)}")
    asked = options.releases or list(RELEASES)
    outcomes = [tried(release, options.target, options.pytest) for release in asked]
    print(table(outcomes))
    for release in RELEASES.keys() - set(asked):
        print(f"{RELEASES[release]}: not tried, for it was not asked for")
    failed = [outcome for outcome in outcomes if not outcome.is_good]
    if not failed and (asked, options.target, options.pytest) == (list(RELEASES), WHOLE, ""):
        PAGE.write_text(page(outcomes, datetime.now(UTC)))
    return 1 if failed else 0


def tried(release: str, target: str, pytest_options: str) -> Outcome:
    print(f"distributions: {RELEASES[release]}: make {target}", flush=True)
    try:
        system = System.made(release)
    except NoSystem as error:
        return Outcome(RELEASES[release], problem=f"not tried: {error}")
    return system.outcome(RELEASES[release], target, pytest_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
