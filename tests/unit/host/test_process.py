"""The process's place in the queue of what dies when memory runs out."""

from pathlib import Path

import pytest

from kbpf.errors import HostError
from kbpf.host.process import adjust_oom_score, release_memory


def test_the_adjustment_is_written(tmp_path: Path):
    file = tmp_path / "oom_score_adj"
    adjust_oom_score(-998, file)
    assert file.read_text() == "-998\n"


def test_a_refusal_says_what_was_tried(tmp_path: Path):
    with pytest.raises(HostError, match=r"cannot set the OOM score adjustment to -999: Is a directory"):
        adjust_oom_score(-999, tmp_path)


def test_free_memory_goes_back_to_the_system():
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    kept = []
    for _ in range(2_000):
        wasted = bytearray(30_000)
        kept.append(bytearray(700))  # between any two, so that nothing at the end of the heap is free
        kept.append(wasted)
    del kept[1::2], wasted
    before = resident()
    release_memory()
    assert resident() < before - 2_000 * 30_000 // 4096 // 2
