"""Kernel settings, fake and real: what can be read, and what a write does."""

from collections.abc import Iterator

import pytest

from kbpf.errors import HostError
from kbpf.host.fake import FakeSysctls
from kbpf.host.sysctl import KernelSysctls, Sysctl, Sysctls

READ_ONLY = frozenset({Sysctl.CONNTRACK_MAX})
"""What a network namespace may not write: the size of the one table of the machine."""
WRITABLE = [sysctl for sysctl in Sysctl if sysctl not in READ_ONLY | {Sysctl.CONNTRACK_BUCKETS}]


@pytest.fixture(params=["fake", pytest.param("kernel", marks=pytest.mark.root)])
def sysctls(request: pytest.FixtureRequest) -> Iterator[Sysctls]:
    if request.param == "fake":
        yield FakeSysctls(dict.fromkeys(Sysctl, 1000), READ_ONLY)
        return
    with request.getfixturevalue("namespace").entered():
        yield KernelSysctls()


@pytest.mark.parametrize("sysctl", WRITABLE, ids=str)
def test_a_value_that_was_written_is_read_back(sysctls: Sysctls, sysctl: Sysctl):
    sysctls.write(sysctl, 1)
    assert sysctls.read(sysctl) == 1


def test_a_refused_write_names_the_file_the_value_and_the_reason_and_changes_nothing(sysctls: Sysctls):
    before = sysctls.read(Sysctl.CONNTRACK_MAX)
    with pytest.raises(HostError) as refused:
        sysctls.write(Sysctl.CONNTRACK_MAX, 2000)
    assert str(refused.value) == "cannot set /proc/sys/net/netfilter/nf_conntrack_max to 2000: Permission denied"
    assert sysctls.read(Sysctl.CONNTRACK_MAX) == before
