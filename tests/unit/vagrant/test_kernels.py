import pytest

from vagrant.vm import kernels
from vagrant.vm.commands import VmError


def test_the_default_is_what_a_machine_s_own_archive_has():
    assert [kernel.name for kernel in kernels.choose("")] == ["6.1", "6.12"]


def test_names_are_chosen_in_the_order_given():
    assert [kernel.name for kernel in kernels.choose("newest, 5.10")] == ["newest", "5.10"]


def test_all_means_all():
    assert [kernel.name for kernel in kernels.choose("all")] == list(kernels.load())


def test_an_unknown_name_is_told_with_those_there_are():
    with pytest.raises(VmError, match=r"no such machine: 4\.19; there are 5\.10, 5\.15, 6\.1"):
        kernels.choose("6.1,4.19")


def test_a_machine_that_lacks_something_runs_another_target():
    lacking = kernels.load()["cgroup1"]
    assert (lacking.target, lacking.boot) == (("test-without-ebpf",), ("KBPF_LACKS=cgroup2",))
