from vagrant.vm.outcome import Outcome
from vagrant.vm.report import Run, failures, table

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
)
GONE = Run("5.10", "", excuse="dpkg-deb | tar failed")


def test_a_row_for_each_kernel_and_datapath():
    assert table([OLD, GONE])[2:] == [
        "| 6.1 (6.1.0-57-cloud-amd64) | ebpf | 2 | 0 | 2 because no TCX |",
        "| 6.1 (6.1.0-57-cloud-amd64) | iptables | 0 | 1 | 0 |",
        "| 5.10 | | | | all, because dpkg-deb \\| tar failed |",
    ]


def test_failures_are_named():
    assert failures([OLD, GONE])[-1] == "- 6.1: `e`: assert | False"
    assert failures([GONE]) == []
