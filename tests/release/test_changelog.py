"""The fragments of `changelog.d/` as towncrier reads them: each has a known kind and becomes one entry."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.building import REPOSITORY

pytestmark = pytest.mark.release

FRAGMENTS = sorted(path for path in (REPOSITORY / "changelog.d").iterdir() if path.name != "README.md")
KINDS = {"added", "changed", "deprecated", "removed", "fixed", "security"}


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_one_entry_of_a_known_kind(fragment: Path) -> None:
    topic, kind, suffix = fragment.name.split(".")
    assert topic.startswith("+")
    assert kind in KINDS
    assert suffix == "md"
    text = fragment.read_text()
    assert not text.startswith(("-", "*", "#"))
    assert text.rstrip().endswith(".")


def test_the_next_section_holds_every_fragment() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n- ") == len(FRAGMENTS)
