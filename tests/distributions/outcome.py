"""What came out in one distribution: its versions, and how many tests passed, failed and were skipped for what."""

import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Outcome:
    distribution: str
    versions: tuple[str, ...] = ()
    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: Counter[str] = field(default_factory=Counter)
    """How many, by reason."""
    problem: str = ""
    """Why there is nothing to count, or what failed beside the tests."""

    @property
    def is_good(self) -> bool:
        return self.passed > 0 and not self.failed and not self.problem


def counted(distribution: str, versions: tuple[str, ...], report: str, status: int) -> Outcome:
    """From pytest's report in the form of JUnit, and the status of the run."""
    passed, failed, skipped = 0, [], Counter[str]()
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314 - written by our own pytest
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}.{case.get('name')}")
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message", "")] += 1
        else:
            passed += 1
    problem = f"ended with status {status}" if status and not failed else ""
    return Outcome(distribution, versions, passed, tuple(failed), skipped, problem)
