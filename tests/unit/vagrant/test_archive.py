from pathlib import Path

import pytest

from vagrant.vm.archive import Archive
from vagrant.vm.commands import VmError

WHOLE = """linux-image-cloud-amd64
  Depends: linux-image-6.1.0-57-cloud-amd64
linux-image-6.1.0-57-cloud-amd64
  Depends: kmod
  Depends: linux-base
"""
SPLIT = """linux-image-cloud-amd64
  Depends: linux-image-7.3.4+deb13-cloud-amd64
linux-image-7.3.4+deb13-cloud-amd64
  Depends: linux-base-7.3.4+deb13-cloud-amd64
  Depends: linux-modules-7.3.4+deb13-cloud-amd64:amd64
  Depends: linux-binary-7.3.4+deb13-cloud-amd64
"""


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        (WHOLE, ["linux-image-6.1.0-57-cloud-amd64"]),
        (SPLIT, [f"linux-{part}-7.3.4+deb13-cloud-amd64" for part in ("base", "binary", "image", "modules")]),
    ],
)
def test_a_kernel_is_all_packages_with_its_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: str, parts: list[str]
):
    monkeypatch.setattr("vagrant.vm.archive.run", lambda *_, **__: listed)
    assert Archive(tmp_path, "bookworm").parts("linux-image-cloud-amd64") == parts


def test_a_package_that_is_no_kernel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("vagrant.vm.archive.run", lambda *_, **__: "hello\n  Depends: libc6\n")
    with pytest.raises(VmError, match="hello of bookworm leads to no kernel"):
        Archive(tmp_path, "bookworm").parts("hello")


def test_the_archive_of_a_day_may_be_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("vagrant.vm.archive.run", lambda *_, **__: "")
    Archive(tmp_path, "bookworm-backports", "http://snapshot.invalid/20240401").update()
    [line] = (tmp_path / "sources.list").read_text().splitlines()
    assert line.endswith(" check-valid-until=no] http://snapshot.invalid/20240401 bookworm-backports main")
    Archive(tmp_path, "bookworm").update()
    assert "check-valid-until" not in (tmp_path / "sources.list").read_text()


def test_a_suite_that_cannot_be_fetched_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refused(*_: object, **__: object) -> str:
        raise VmError("apt-get: exit status 100")

    monkeypatch.setattr("vagrant.vm.archive.run", refused)
    with pytest.raises(VmError, match="buster cannot be fetched from http://snapshot"):
        Archive(tmp_path, "buster", "http://snapshot.invalid").update()
