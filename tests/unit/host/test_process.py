"""The process's place in the queue of what dies when memory runs out."""

from pathlib import Path

import pytest

from kbpf.errors import HostError
from kbpf.host.process import adjust_oom_score


def test_the_adjustment_is_written(tmp_path: Path):
    file = tmp_path / "oom_score_adj"
    adjust_oom_score(-998, file)
    assert file.read_text() == "-998\n"


def test_a_refusal_says_what_was_tried(tmp_path: Path):
    with pytest.raises(HostError, match=r"cannot set the OOM score adjustment to -999: Is a directory"):
        adjust_oom_score(-999, tmp_path)
