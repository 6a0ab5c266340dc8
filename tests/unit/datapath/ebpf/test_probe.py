"""Three answers: what counts as missing, what could not be tried, and what the daemon can still bring about."""

import errno
import os
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import filesystem, libbpf, probe
from kbpf.datapath.ebpf.uplinks import Way
from kbpf.datapath.interface import Answer, Feature

YES = Feature("hook connect4", Answer.YES)
NO = Feature("bcc", Answer.NO, "no Python with BCC")
UNKNOWN = Feature("cgroup link", Answer.UNKNOWN, "no cgroup")


def test_yes_when_everything_is_there() -> None:
    assert probe.decide([YES]).answer is Answer.YES


def test_no_beats_cannot_tell_and_names_the_feature() -> None:
    support = probe.decide([YES, UNKNOWN, NO])
    assert (support.answer, support.reason) == (Answer.NO, "bcc: no Python with BCC")
    assert support.features == (YES, UNKNOWN, NO)


def test_cannot_tell_when_something_could_not_be_tried() -> None:
    support = probe.decide([YES, UNKNOWN])
    assert (support.answer, support.reason) == (Answer.UNKNOWN, "cgroup link: no cgroup")


def test_a_missing_optional_feature_does_not_matter() -> None:
    assert probe.decide([YES, Feature(probe.SET_RETVAL, Answer.NO, "unknown func")]).answer is Answer.YES


def packet_path(*missing: str) -> list[Feature]:
    names = (probe.PACKET_PROGRAMS, *probe.WAYS.values())
    return [Feature(name, Answer.NO if name in missing else Answer.YES) for name in names]


def test_links_are_preferred_to_filters_and_without_programs_neither_helps() -> None:
    assert probe.way_onto_devices(packet_path()) is Way.TCX
    assert probe.way_onto_devices(packet_path("tcx links")) is Way.CLSACT
    assert probe.way_onto_devices(packet_path("tcx links", "clsact filters")) is None
    assert probe.way_onto_devices(packet_path(probe.PACKET_PROGRAMS)) is None


def test_without_a_packet_path_the_datapath_runs() -> None:
    assert probe.decide([YES, *packet_path(probe.PACKET_PROGRAMS, "tcx links")]).answer is Answer.YES


def refuse() -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_what_the_kernel_refuses_is_no() -> None:
    assert probe.tried("hook connect9", refuse) == Feature("hook connect9", Answer.NO, "Invalid argument")


def test_what_works_is_yes_and_what_gives_a_reason_is_no() -> None:
    assert probe.tried("x", lambda: None) == Feature("x", Answer.YES)
    assert probe.tried("x", lambda: "because") == Feature("x", Answer.NO, "because")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ((12, 39), Feature("capabilities", Answer.YES)),
        ((21,), Feature("capabilities", Answer.YES)),
        ((12,), Feature("capabilities", Answer.NO, "missing CAP_BPF")),
        ((), Feature("capabilities", Answer.NO, "missing CAP_NET_ADMIN and CAP_BPF")),
    ],
)
def test_capabilities_are_read_from_the_process(
    tmp_path: Path, capabilities: tuple[int, ...], expected: Feature
) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tkbpf\nCapEff:\t{sum(1 << bit for bit in capabilities):016x}\n")
    assert probe.probe_capabilities(status) == expected


def test_without_libbpf_nothing_of_the_kernel_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libbpf, "LIBRARY", "libnone.so.1")
    libbpf.library.cache_clear()
    support = probe.probe(tmp_path, tmp_path)
    libbpf.library.cache_clear()
    by_name = {feature.name: feature for feature in support.features}
    assert by_name["libbpf"].answer is Answer.NO
    assert "libnone.so.1 cannot be loaded" in by_name["libbpf"].reason
    tried_none = [
        feature for name, feature in by_name.items() if name.startswith(("hook", "map", "bpf_", "cgroup link"))
    ]
    assert len(tried_none) == 20
    assert {feature.answer for feature in tried_none} == {Answer.UNKNOWN}


def test_a_folder_elsewhere_is_neither_bpffs_nor_cgroup(tmp_path: Path) -> None:
    missing = tmp_path / "not" / "there"
    assert probe.probe_bpffs(missing) == Feature("bpffs", Answer.NO, f"{missing} is not on a bpffs")
    reason = f"{tmp_path} is not a folder of a cgroup2 hierarchy"
    assert probe.probe_cgroup(tmp_path) == Feature("cgroup2", Answer.NO, reason)


def test_the_kernels_empty_mount_point_counts_as_bpffs() -> None:
    mount_point = Path("/sys/kernel")  # stands for /sys/fs/bpf before anything is mounted there: a folder of sysfs
    feature = probe.probe_bpffs(mount_point / "kbpf", mount_point)
    assert feature == Feature("bpffs", Answer.YES, "not mounted yet; kbpf mounts it on /sys/kernel")


MOUNTS = """\
30 23 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu
40 30 0:29 /docker/x /mnt/part rw shared:2 master:1 - cgroup2 cgroup2 rw
41 30 0:29 / /sys/fs/cgroup/a\\040b rw shared:2 - cgroup2 cgroup2 rw
"""


def test_the_cgroup2_mount_that_hides_nothing_is_found(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert filesystem.find_cgroup2(mounts) == Path("/sys/fs/cgroup/a b")
    mounts.write_text(MOUNTS.splitlines()[0])
    assert filesystem.find_cgroup2(mounts) is None
