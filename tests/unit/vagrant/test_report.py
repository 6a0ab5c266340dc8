from pathlib import Path

from vagrant.vm.outcome import Outcome
from vagrant.vm.report import Run, failures, keep, kept, page, table

OLD = Run(
    "6.1",
    "6.1.0-57-cloud-amd64",
    (
        Outcome("a", "ebpf", "passed"),
        Outcome("b", "ebpf", "passed"),
        Outcome("c", "ebpf", "skipped", "no TCX"),
        Outcome("d", "ebpf", "skipped", "no TCX"),
        Outcome("e", "iptables", "failed", "assert | False"),
    ),
    when="2026-11-30, commit abc, tcg, 300 s",
)
GONE = Run("5.10", "", excuse="dpkg-deb | tar failed")


def test_a_row_for_each_kernel_and_datapath():
    assert table([OLD, GONE])[2:] == [
        "| 6.1 | ebpf | 2 | 0 | 2 because no TCX |",
        "| 6.1 | iptables | 0 | 1 | 0 |",
        "| 5.10 | | | | all, because dpkg-deb \\| tar failed |",
    ]


def test_failures_are_named():
    assert failures([OLD, GONE])[-1] == "- 6.1: `e`: assert | False"
    assert failures([GONE]) == []


def test_the_page_shows_the_last_run_of_each_machine(tmp_path: Path):
    for run in (Run("6.1", "6.1.0-56", excuse="an earlier run"), OLD, GONE):
        keep(tmp_path / "results", run)
    runs = kept(tmp_path / "results", ["5.10", "6.1", "6.12"])
    assert runs == [GONE, OLD]
    assert "- 6.1: 6.1.0-57-cloud-amd64, 2026-11-30, commit abc, tcg, 300 s\n\n## Failures" in page(runs)
