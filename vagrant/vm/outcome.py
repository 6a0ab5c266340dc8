"""What became of the tests in a machine, read from pytest's report in XML.

A test that carries the marker `kernels` says in it which datapath it shows; `report` makes the table from these values.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

Verdict = Literal["passed", "failed", "skipped"]
REPORT = "tests.xml"


@dataclass(frozen=True, slots=True)
class Outcome:
    test: str
    datapath: str
    verdict: Verdict
    reason: str = ""
    """Why it failed or was skipped, in one line."""


def read(results: Path) -> tuple[Outcome, ...]:
    """Empty when pytest wrote no report."""
    path = results / REPORT
    if not path.exists():
        return ()
    # Our own tests wrote it.
    return tuple(_outcomes(ElementTree.parse(path).getroot()))  # noqa: S314


def counted(outcomes: Sequence[Outcome], datapath: str) -> Counter[Verdict]:
    return Counter(outcome.verdict for outcome in outcomes if outcome.datapath == datapath)


def _outcomes(root: ElementTree.Element) -> Iterator[Outcome]:
    for case in root.iter("testcase"):
        properties = {found.get("name"): found.get("value", "") for found in case.iter("property")}
        test = f"{case.get('classname', '')}::{case.get('name', '')}"
        verdict, reason = _judged(case)
        yield Outcome(test, properties.get("datapath") or "none", verdict, reason)


def _judged(case: ElementTree.Element) -> tuple[Verdict, str]:
    """A test may have failed, and its tear-down as well."""
    for tag in ("failure", "error"):
        if (found := case.find(tag)) is not None:
            return "failed", _first_line(found)
    if (found := case.find("skipped")) is not None:
        return "skipped", _first_line(found)
    return "passed", ""


def _first_line(found: ElementTree.Element) -> str:
    return ((found.get("message") or found.text or "").strip().splitlines() or ["no reason"])[0]
