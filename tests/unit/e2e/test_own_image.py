"""kbpf's own image: started as the Dockerfile says, and a newer build of it that really is another."""

import shutil
from pathlib import Path

import pytest

from kbpf import __version__
from kbpf.datapath.ebpf.hooks import PACKET_PROGRAMS
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.source import Unit, bpf_folder, describe
from tests.cluster.programs import ProgramFailed
from tests.e2e.archive import PATH
from tests.e2e.dockerfile import DOCKERFILE, settings
from tests.e2e.own_image import NEWER_VERSION, PROGRAMS, builds, newer_files

PACKAGE = "opt/kbpf/lib/python3.11/site-packages/kbpf"
PINS = Pins(Path("/sys/fs/bpf/kbpf"))
TWO_STAGES = """
FROM debian AS build
ENTRYPOINT ["/build"]
ENV BUILD=1
FROM debian
# A comment.
RUN make \\
    && make install
ENV A=1 B="two words"
LABEL title=kbpf \\
      licenses=Apache-2.0
USER 1000
ENTRYPOINT ["/usr/local/bin/kbpf"]
CMD ["--help"]
"""


def test_settings_are_those_of_the_last_stage() -> None:
    found = settings(TWO_STAGES)
    assert found.entrypoint == ("/usr/local/bin/kbpf",)
    assert found.command == ("--help",)
    assert found.user == "1000"
    assert found.environment == (PATH, "A=1", "B=two words")
    assert found.labels == {"title": "kbpf", "licenses": "Apache-2.0"}


def test_an_instruction_that_would_be_lost_is_refused() -> None:
    with pytest.raises(ProgramFailed, match="VOLUME"):
        settings("FROM debian\nVOLUME /data\n")


def test_the_dockerfile_starts_kbpf() -> None:
    found = settings(DOCKERFILE.read_text())
    assert found.entrypoint == ("/usr/local/bin/kbpf",)
    assert found.labels["org.opencontainers.image.title"] == "kbpf"


def test_the_manifests_name_the_current_version() -> None:
    current, newer = builds()
    assert current.name.endswith(f":{__version__}")
    assert newer.name.endswith(f":{NEWER_VERSION}")


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """As much of the image's file system as a newer build changes."""
    package = tmp_path / PACKAGE
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    (package / "__pycache__/__init__.cpython-311.pyc").write_text("")
    shutil.copytree(bpf_folder(), package / "bpf")
    return tmp_path


def test_the_newer_build_calls_itself_by_another_version(rootfs: Path) -> None:
    files = newer_files(rootfs)
    assert files[f"{PACKAGE}/__init__.py"] == f'__version__ = "{NEWER_VERSION}"\n'
    assert files[f"{PACKAGE}/__pycache__/.wh.__init__.cpython-311.pyc"] == ""


def test_the_newer_build_has_other_programs(rootfs: Path) -> None:
    def programs() -> tuple[Unit, ...]:
        bpf = rootfs / PACKAGE / "bpf"
        return describe(PINS, {}, has_set_retval=True, packet_programs=PACKET_PROGRAMS, folder=bpf).units

    before = programs()
    for name, text in newer_files(rootfs).items():
        (rootfs / name).write_text(text)
    assert len(before) == len(PROGRAMS)
    assert all(old.text != new.text for old, new in zip(before, programs(), strict=True))
