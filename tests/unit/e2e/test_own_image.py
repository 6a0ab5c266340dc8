"""kbpf's own image: started as the Dockerfile says, and a newer build of it that really is another."""

from pathlib import Path

import pytest

from kbpf import __version__
from kbpf.datapath.ebpf.source import bpf_folder
from tests.cluster.programs import ProgramFailed
from tests.e2e.archive import PATH
from tests.e2e.dockerfile import DOCKERFILE, settings
from tests.e2e.own_image import NEWER_VERSION, PROGRAMS, builds, newer_files

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


def test_the_newer_build_has_another_version_and_other_programs(tmp_path: Path) -> None:
    package = tmp_path / "opt/kbpf/lib/python3.11/site-packages/kbpf"
    (package / "__pycache__").mkdir(parents=True)
    (package / "bpf").mkdir()
    (package / "__init__.py").write_text(f'__version__ = "{__version__}"\n')
    (package / "__pycache__/__init__.cpython-311.pyc").write_text("")
    for program in PROGRAMS:
        (package / program).write_text((bpf_folder().parent / program).read_text())
    inside = package.relative_to(tmp_path)
    files = newer_files(tmp_path)
    assert files.pop(f"{inside}/__init__.py") == f'__version__ = "{NEWER_VERSION}"\n'
    assert files.pop(f"{inside}/__pycache__/.wh.__init__.cpython-311.pyc") == ""
    assert files.keys() == {f"{inside}/{program}" for program in PROGRAMS}
    assert all(text.startswith((package / Path(name).relative_to(inside)).read_text()) for name, text in files.items())
