"""The Debian package on a fresh system: it installs with what it names, serves as its unit says, and goes entirely."""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbpf import __version__
from tests.debian.machine import REPOSITORY, Machine, PackagedProxy
from tests.image.served import expect_served, write_served
from tests.kernel.world import CLUSTER_RANGES, World, standing_world

pytestmark = [pytest.mark.root, pytest.mark.deb]

ROOT = REPOSITORY / "tests/distributions/root.sh"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A minimal system of the distribution that the package is for, with its dependencies and without it."""
    (package,) = (REPOSITORY / "build/deb").glob("kbpf_*.deb")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    minimal = subprocess.run([ROOT, release], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    root = tmp_path_factory.mktemp("machine") / "root"
    subprocess.run(["cp", "--archive", "--reflink=auto", REPOSITORY / minimal, root], check=True)
    try:
        machine = Machine(root, package)
        machine.install_dependencies()
        yield machine
    finally:
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def files_before(bare: Machine) -> set[str]:
    return bare.files()


@pytest.fixture(scope="module")
def machine(bare: Machine, files_before: set[str]) -> Machine:
    assert not [name for name in files_before if "kbpf" in name]
    bare.install()
    return bare


@contextmanager
def serving(machine: Machine, datapath: str, folder: Path) -> Iterator[tuple[World, PackagedProxy]]:
    """The installed kbpf on the manifests of a Service with two pods."""
    manifests = write_served(folder)
    with standing_world(folder) as world:
        options = (f"--datapath={datapath}", "--fallback=none", "--cluster-cidr", CLUSTER_RANGES)
        quiet = ("--conntrack-max-per-core=0", "--oom-score-adj=0")
        proxy = PackagedProxy(world, machine, manifests, folder / "kbpf.log", *options, *quiet)
        proxy.start()
        try:
            proxy.wait_until_healthy(120)
            yield world, proxy
        finally:
            proxy.terminate()


def test_it_is_installed_whole(machine: Machine) -> None:
    assert machine.run("dpkg-query", "--show", "--showformat=${db:Status-Status}", "kbpf") == "installed"
    assert machine.run("dpkg", "--audit") == ""
    assert machine.run("dpkg", "--verify", "kbpf") == ""


def test_it_says_its_version(machine: Machine) -> None:
    assert machine.run("kbpf", "--version") == f"kbpf, version {__version__}\n"
    package_version = machine.run("dpkg-query", "--show", "--showformat=${Version}", "kbpf")
    assert package_version.startswith(f"{__version__}-1~")


def test_its_configuration_loads_and_names_the_folder_of_manifests(machine: Machine) -> None:
    machine.run("kbpf", "--config=/etc/kbpf/config.yaml", "--write-config-to=/tmp/effective.yaml")
    assert "- /etc/kbpf/manifests" in (machine.root / "tmp/effective.yaml").read_text()
    assert (machine.root / "etc/kbpf/manifests").is_dir()


def test_its_unit_starts_what_is_installed(machine: Machine) -> None:
    (unit,) = (path for path in machine.files() if path.endswith("/system/kbpf.service"))
    assert "ExecStart=/usr/sbin/kbpf --config=/etc/kbpf/config.yaml\n" in (machine.root / unit).read_text()
    # Not until somebody has written the configuration.
    assert not list((machine.root / "etc/systemd").glob("**/kbpf.service"))


@pytest.mark.parametrize("datapath", ["ebpf", "iptables"])
def test_it_serves_and_leaves_what_it_programmed(datapath: str, machine: Machine, tmp_path: Path) -> None:
    with serving(machine, datapath, tmp_path) as (world, proxy):
        assert "Would run: ebpf (every probe passed)" in proxy.ask("probe")
        expect_served(world, proxy)
        proxy.cleanup()


def test_removing_it_takes_its_rules_away_and_purging_it_leaves_nothing(
    machine: Machine, files_before: set[str], tmp_path: Path
) -> None:
    # A machine that systemd has started; elsewhere, as in a build of an image, removal touches no kernel.
    (machine.root / "run/systemd/system").mkdir(parents=True)
    with serving(machine, "iptables", tmp_path) as (world, proxy):
        node = Path(world.node.namespace.path)
        proxy.terminate()
        assert "-A KUBE-SERVICES" in machine.run("iptables-save", network=node)
        machine.run("dpkg", "--remove", "kbpf", network=node)
        assert "KUBE-" not in machine.run("iptables-save", network=node)
    machine.run("dpkg", "--purge", "kbpf")
    assert machine.files() == files_before
